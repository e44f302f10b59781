"""Runs sorted into scenes and methods: a method on a scene is a set of runs that differ in nothing but the seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nerfjax.runs.confounders import BESIDE_THE_FINGERPRINT, CONFOUNDER, DECLARED, METHOD, OF_THE_SCENE, Pair, classify
from nerfjax.runs.records import RunRecord

MAX_PARTS = 2
OF_THE_MEASUREMENT = ("evaluation", "protocol")


class Group(NamedTuple):
    """A scene or a method: its name, and the indices of its runs."""

    name: str
    runs: tuple[int, ...]


def group_scenes(records: Sequence[RunRecord], pairs: Sequence[Pair]) -> list[Group]:
    """Returns the scenes in the order of their first runs; runs on variants of one capture are together."""
    root = list(range(len(records)))
    for pair in pairs:
        if pair.same_scene and root[pair.first] != root[pair.second]:
            low, high = sorted((root[pair.first], root[pair.second]))
            root = [low if each == high else each for each in root]
    members = {first: tuple(i for i, each in enumerate(root) if each == first) for first in dict.fromkeys(root)}
    names = [records[first].scene for first in members]
    shown = [
        f"{name} ({str(records[first].manifest.get('scene_fingerprint'))[:8]})" if names.count(name) > 1 else name
        for name, first in zip(names, members, strict=True)
    ]
    return [Group(name, runs) for name, runs in zip(shown, members.values(), strict=True)]


def group_methods(
    records: Sequence[RunRecord], facts: Sequence[Mapping[str, Any]], scenes: Sequence[Group]
) -> list[Group]:
    """Returns the methods in the order of their first runs.

    Two runs are of one method if they have the same declared choices, and the same of everything that would confound
    them, except what belongs to the scene. On one scene that must be equal, too.
    """
    scene_of = {run: index for index, scene in enumerate(scenes) for run in scene.runs}
    measured_first = sorted(range(len(records)), key=lambda run: "evaluation.step" not in facts[run])
    variants: dict[Any, list[dict[str, Any]]] = {}
    keys: dict[int, tuple[str, int, int]] = {}
    for run in measured_first:
        base, of_measurement, of_scene = _facets(facts[run])
        text = json.dumps(base, sort_keys=True, default=str)
        measured = _variant(variants.setdefault(text, []), of_measurement)
        keys[run] = (text, measured, _variant(variants.setdefault(scene_of[run], []), of_scene))
    members: dict[tuple[str, int, int], list[int]] = {}
    for run in range(len(records)):
        members.setdefault(keys[run], []).append(run)
    names = _method_names([{**_facets(facts[runs[0]])[0], **_facets(facts[runs[0]])[1]} for runs in members.values()])
    letters = ["".join(records[run].label for run in runs) for runs in members.values()]
    unique = [f"{name} ({by})" if names.count(name) > 1 else name for name, by in zip(names, letters, strict=True)]
    return [Group(name, tuple(runs)) for name, runs in zip(unique, members.values(), strict=True)]


def _facets(facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Splits the facts that count into those of the method, of how it was measured, and of the scene."""
    base, of_measurement, of_scene = {}, {}, {}
    for key, value in facts.items():
        rule = classify(key)
        if (
            rule is None
            or rule[0] not in (DECLARED, CONFOUNDER)
            or (value is None and key not in BESIDE_THE_FINGERPRINT)
        ):
            continue
        if key.startswith(OF_THE_SCENE):
            # The fingerprint covers the rest of the scene: its size, splits, cameras and background.
            covered = key.startswith(("scene", "split")) and key not in ("scene.fingerprint", *BESIDE_THE_FINGERPRINT)
            of_scene |= {} if covered else {key: value}
        elif key.startswith(OF_THE_MEASUREMENT):
            of_measurement[key] = value
        else:
            base[key] = value
    return base, of_measurement, of_scene


def _variant(known: list[dict[str, Any]], facets: dict[str, Any]) -> int:
    """Returns the index of the first known variant that contradicts nothing, and adds one where there is none."""
    for index, variant in enumerate(known):
        if all(variant[key] == facets[key] for key in variant.keys() & facets.keys()):
            return index
    known.append(facets)
    return len(known) - 1


def _method_names(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names methods by the facts in which they differ, the choices first."""
    keys = [key for key in dict.fromkeys(key for each in facts for key in each) if _varies(key, facts)]
    # A network that only some samplers have is no name for them, nor is how only some runs were measured.
    keys = [
        key
        for key in keys
        if not (key.endswith(".name") or key.startswith(OF_THE_MEASUREMENT))
        or _varies(key, [each for each in facts if key in each])
    ]
    keys.sort(key=lambda key: (not key.endswith(".name"), _order(key), key))
    names = []
    for each in facts:
        parts = []
        for key in keys:
            head, _, tail = key.partition(".")
            of_same_member = [other for other in facts if other.get(f"{head}.name") == each.get(f"{head}.name")]
            if key in each and (key.endswith(".name") or _varies(key, of_same_member)):
                parts.append(_part(head, tail, each[key]))
        more = ", …" if len(parts) > MAX_PARTS else ""
        names.append(", ".join(parts[:MAX_PARTS]) + more or str(each.get("sampler.name") or "the method"))
    return names


def _varies(key: str, facts: Sequence[Mapping[str, Any]]) -> bool:
    return any(each.get(key) != facts[0].get(key) for each in facts)


def _order(key: str) -> int:
    head = key.partition(".")[0]
    return METHOD.index(head) if head in METHOD else len(METHOD)


def _part(head: str, tail: str, value: Any) -> str:
    if tail == "name":
        return str(value) if head == "sampler" else f"{head} {value}"
    if head == "code":
        return f"code {str(value)[:8]}"
    if isinstance(value, (list, tuple)) and not all(isinstance(item, (int, float)) for item in value):
        return head
    option = tail.rpartition(".")[2] or head
    return f"{option} {value}" if not isinstance(value, Mapping) else option
