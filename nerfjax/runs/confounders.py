"""What differs between two runs, and whether that is what is compared or what spoils the comparison.

A run's facts are flat keys: the options that its config bound, and what its manifest and evaluation recorded. Each
key has a kind:

- ``declared``: a choice of method (sampler, field, loss, optimizer, …), which is what an experiment is about;
- ``confounder``: what must be equal for the numbers to mean the same (``CONFOUNDERS``). The user may declare one to be
  the subject of the experiment; the output then says so;
- ``replicate``: seeds;
- ``cost``: hardware, which bears on time and cost only;
- ``note``: versions of packages, told and not held against anybody.

A key that nobody has classified is a confounder: better one refusal too many than a wrong ranking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nerfjax.errors import UserError, did_you_mean
from nerfjax.runs.records import Evaluation, RunRecord, section

DECLARED, CONFOUNDER, REPLICATE, COST, NOTE, SUBJECT = (
    *("declared", "confounder", "replicate", "cost", "note", "subject"),
)
CONFOUNDERS = {
    "scene": "images and cameras, by fingerprint",
    "split": "which views train and which are measured",
    "resolution": "size of the images",
    "background": "what is behind the scene, in training and in the metric",
    "protocol": "the variant of the metrics",
    "evaluation": "the step and the views that were measured",
    "precision": "of the networks' matrix products",
    "budget": "steps and rays",
    "code": "the files of the package",
    "curriculum": "stages of the training",
    "changes": "what was changed in the middle of a run",
    "setting": "an option that compare does not know",
}
METHOD = ("sampler", "network", "field", "pixels", "loss", "optimizer", "schedule", "render", "data", "rungs")
# The longest prefix of whole parts counts; None: where a run lives and how often it reports.
RULES: dict[str, tuple[str, str] | None] = {
    **{name: (DECLARED, name) for name in METHOD},
    **dict.fromkeys(("scene.source", "scene.format", "scene.examine", "scene.holdout", "evaluation.memory_mb"), None),
    **dict.fromkeys(("data.memory_mb", "data.prepare", "train.log_every", "train.eval_every"), None),
    **dict.fromkeys(("train.checkpoint_every", "train.steps_per_dispatch", "train.compile_ahead"), None),
    **dict.fromkeys(("train.keep_latest", "train.keep_every", "train.keep_best", "train.logger"), None),
    # What a rollback did is told as a change; that one was allowed is nothing.
    **dict.fromkeys(("train.on_divergence", "train.rollback_factor", "train.price_per_device_hour"), None),
    **{name: (CONFOUNDER, name) for name in CONFOUNDERS},
    "scene.downscale": (CONFOUNDER, "resolution"),
    "scene.background": (CONFOUNDER, "background"),
    "evaluation.sizes": (CONFOUNDER, "resolution"),
    "protocol.background": (CONFOUNDER, "background"),
    "train.steps": (CONFOUNDER, "budget"),
    "train.batch_rays": (CONFOUNDER, "budget"),
    "train.rungs": (DECLARED, "rungs"),
    "train.ema": (DECLARED, "averaging"),
    "train.seed": (REPLICATE, "seed"),
    "seeds": (REPLICATE, "seed"),
    "devices": (COST, "hardware"),
    "parallel": (COST, "hardware"),
    "packages": (NOTE, "packages"),
}
# Facts of the scene and of what was measured of it; the same method may have others on another scene.
OF_THE_SCENE = ("scene", "split", "evaluation.views", "evaluation.sizes", "protocol.background")
# What the scene's fingerprint does not cover.
BESIDE_THE_FINGERPRINT = ("scene.near", "scene.far")
NOT_RECORDED = "not recorded"


class Difference(NamedTuple):
    """One fact that differs between two runs, with its kind and category."""

    key: str
    kind: str
    category: str
    values: tuple[Any, Any]


class Pair(NamedTuple):
    """Two runs, by index, and what differs between them.

    ``verdict`` is "confounded", "declared" (differs in what the experiment is about), "replicate" (in the seed only)
    or "equal". ``same_scene``: whether both are runs on one capture, perhaps split or scaled in other ways.
    """

    first: int
    second: int
    verdict: str
    same_scene: bool
    differences: tuple[Difference, ...]

    def of_kind(self, *kinds: str) -> list[Difference]:
        """Returns the differences of some kinds."""
        return [difference for difference in self.differences if difference.kind in kinds]


def classify(key: str) -> tuple[str, str] | None:
    """Returns the kind and category of a fact, None for one that does not count."""
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in RULES:
            return RULES[prefix]
    if parts[0] == "train" and key.endswith("_weight"):
        return DECLARED, "loss"
    return CONFOUNDER, "setting"


def facts_of(record: RunRecord, evaluation: Evaluation | None) -> dict[str, Any]:
    """Returns the facts of a run, flat; ``None`` is what it does not record."""
    manifest, scene = record.manifest, section(record.manifest, "scene")
    facts = {key: value for key, value in record.config.items() if not key.startswith(("curriculum", "precision"))}
    steps = record.config.get("train.steps")
    for key, value in facts.items():
        if key.startswith("schedule.") and key.endswith(".steps") and value in (0, steps):
            facts[key] = "as long as the run"
    facts |= {key: "of the capture" for key in BESIDE_THE_FINGERPRINT if facts.get(key) is None}
    facts |= {f"split.{name}": names for name, names in section(manifest, "split").items()}
    facts |= {f"devices.{name}": value for name, value in section(manifest, "devices").items()}
    facts |= {f"packages.{name}": value for name, value in section(manifest, "packages").items()}
    facts |= {
        "scene.name": record.scene,
        "scene.fingerprint": manifest.get("scene_fingerprint") or None,
        "scene.cameras": scene.get("cameras"),
        "scene.background": section(manifest, "render").get("background"),
        "precision": _precision(record),
        "code": _code(manifest),
        "curriculum": _curriculum(record),
        "changes": _changes(record) or None,
        "seeds": record.seed,
    }
    return facts if evaluation is None else facts | _measured(record, evaluation)


def _measured(record: RunRecord, evaluation: Evaluation) -> dict[str, Any]:
    """What an evaluation says of how it measured; ends and whole splits by name, so that they equal each other."""
    listed = section(record.manifest, "split").get(evaluation.split)
    names = sorted(evaluation.images)
    recorded = [image.get("size") for image in evaluation.images.values()]
    sizes = sorted({"x".join(map(str, size)) if isinstance(size, list) else "?" for size in recorded})
    at_end = evaluation.step == record.total_steps
    return {
        "evaluation.step": "the end" if at_end else evaluation.step,
        "evaluation.views": f"the {evaluation.split} split" if listed and sorted(listed) == names else names,
        "evaluation.sizes": ", ".join(sizes),
        **{f"protocol.{name}": value for name, value in (evaluation.protocol or {"name": None}).items()},
    }


def _precision(record: RunRecord) -> str | None:
    """What "default" means depends on the platform: float32 on CPUs, TF32 on GPUs, bfloat16 on TPUs."""
    precision = record.manifest.get("precision") or record.config.get("precision")
    platform = section(record.manifest, "devices").get("platform")
    known = precision in ("highest", "float32", "bfloat16") or not platform or precision is None
    return precision if known else f"{precision} on {platform}"


def _curriculum(record: RunRecord) -> str | None:
    """The stages as the config gives them; what the manifest derives from them (rays, steps) depends on the method."""
    stages = {key.removeprefix("curriculum."): v for key, v in record.config.items() if key.startswith("curriculum.")}
    recorded = None if "curriculum" in record.manifest["config"] else record.manifest.get("curriculum")
    return "; ".join(f"{key} {value}" for key, value in stages.items()) or (str(recorded) if recorded else None)


def _code(manifest: Mapping[str, Any]) -> str | None:
    """Every version of the package that took part in the run, restarts included."""
    code = section(manifest, "code")
    versions = [code.get("sha256") or (code.get("commit") if not code.get("dirty") else None)]
    for _, key, _, new in _restart_changes(manifest):
        versions += [new] if key == "code.sha256" and new not in versions else []
    return " then ".join(map(str, versions)) if all(versions) else None


def _changes(record: RunRecord) -> list[str]:
    """Options and inputs changed at a restart, and rollbacks; more steps are no change, nor is what takes no part."""
    told = []
    for step, key, old, new in _restart_changes(record.manifest):
        name = key.removeprefix("config.")
        rule = classify(name)
        takes_part = key.startswith("config.") and name in record.config and rule is not None
        decides = takes_part and rule[0] in (DECLARED, CONFOUNDER) and not name.startswith("scene.")
        if key == "scene_fingerprint" or (decides and name.split(".")[-1] != "steps"):
            told.append(f"{name} at step {step}: {old} to {new}")
    rollbacks = record.manifest.get("rollbacks")
    for each in rollbacks if isinstance(rollbacks, list) else ():
        if isinstance(each, Mapping):
            told.append(f"learning rate times {each.get('rate_scale')} from step {each.get('restored_step')}, diverged")
    return told


def _restart_changes(manifest: Mapping[str, Any]) -> Iterable[tuple[Any, str, Any, Any]]:
    for restart in manifest.get("restarts") or ():
        for key, values in section(restart, "differs").items():
            if isinstance(values, Sequence) and len(values) == 2:
                yield restart.get("step"), key, *values


def compare_pair(first: int, second: int, facts: Sequence[Mapping[str, Any]], subjects: Sequence[str] = ()) -> Pair:
    """Classifies what differs between two runs.

    Args:
      first: index of one run.
      second: index of the other.
      facts: of all runs.
      subjects: categories or keys of confounders that the user declared to be what the experiment is about.
    """
    a, b = facts[first], facts[second]
    relation, of_scene = _scene_differences(a, b)
    keys = [key for key in dict.fromkeys([*a, *b]) if not key.startswith(("scene.", "split."))]
    measured = all("evaluation.step" in each for each in (a, b))
    if not measured:
        keys = [key for key in keys if not key.startswith(("evaluation.", "protocol."))]
    if relation == "different":
        keys = [key for key in keys if not key.startswith(OF_THE_SCENE)]
    found = [*of_scene, *(key for key in keys if _differs(key, a, b))]
    differences = []
    for key in found:
        rule = classify(key)
        if rule is not None:
            kind, category = rule
            kind = SUBJECT if kind == CONFOUNDER and is_subject(key, category, subjects) else kind
            differences.append(Difference(key, kind, category, _shown(key, a, b)))
    kinds = {difference.kind for difference in differences}
    verdict = next(
        (name for name, members in (
            ("confounded", {CONFOUNDER}), ("declared", {DECLARED, SUBJECT}), ("replicate", {REPLICATE}),
        ) if kinds & members),
        "equal",
    )  # fmt: skip
    return Pair(first, second, verdict, relation != "different", tuple(differences))


def _differs(key: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    one, other = a.get(key), b.get(key)
    if key == "code" and one is None and other is None:
        return True  # nobody knows whether it was the same
    if key.startswith("packages."):
        return one is not None and other is not None and one != other
    return one != other


def _shown(key: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Any, Any]:
    shown = []
    for facts in (a, b):
        value = facts.get(key)
        if key == "scene.fingerprint":
            value = f"{facts['scene.name']} ({str(value)[:8]})" if value else None
        rule = classify(key)
        absent = "none" if rule is not None and rule[0] == DECLARED else NOT_RECORDED
        shown.append(absent if value is None else value)
    return shown[0], shown[1]


def _scene_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Tells whether two runs saw the same scene, and the keys in which it differs.

    The fingerprint covers images, cameras, splits, downscale and background, so equal ones settle it. Of unequal ones
    it does not say what made them so: a split, size or background that is recorded to differ explains it on a capture
    of the same name with the same cameras, or at least some of the same views (images of another size have others).

    Returns:
      "same", "variant" (of one capture) or "different", and keys.
    """
    one, other = a["scene.fingerprint"], b["scene.fingerprint"]
    beside = [key for key in BESIDE_THE_FINGERPRINT if a.get(key) != b.get(key)]
    if one and one == other:
        return "same", beside
    named_alike = a["scene.name"] == b["scene.name"]
    if not one or not other:
        return ("variant" if named_alike else "different"), ["scene.fingerprint", *beside]
    keys = [key for key in dict.fromkeys([*a, *b]) if key.startswith(("scene.", "split.")) and a.get(key) != b.get(key)]
    explained = [key for key in keys if key.startswith("split.") or key in ("scene.downscale", "scene.background")]
    sizes = [each.get("evaluation.sizes") for each in (a, b)]
    resized = all(sizes) and sizes[0] != sizes[1]
    same_cameras = a["scene.cameras"] and a["scene.cameras"] == b["scene.cameras"]
    if named_alike and same_cameras:
        return "variant", [*(explained or ["scene.fingerprint"]), *beside]
    if named_alike and (explained or resized) and _views(a) & _views(b):
        return "variant", [*explained, *beside]
    return "different", ["scene.fingerprint"]


def _views(facts: Mapping[str, Any]) -> set[str]:
    return {str(name) for key, names in facts.items() if key.startswith("split.") for name in names or ()}


def is_subject(key: str, category: str, subjects: Sequence[str]) -> bool:
    """Whether a key was declared to be what the experiment is about."""
    return any(subject in (key, category) or key.startswith(f"{subject}.") for subject in subjects)


def check_subjects(subjects: Sequence[str], facts: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns the subjects without ``config.``.

    Raises:
      UserError: one names no confounder.
    """
    names = tuple(subject.removeprefix("config.") for subject in subjects)
    rules = {key: classify(key) for each in facts for key in each}
    keys = {key for key, rule in rules.items() if rule is not None and rule[0] == CONFOUNDER}
    for name in names:
        rule = rules.get(name)
        if rule is not None and rule[0] != CONFOUNDER:
            raise UserError(
                "A subject must be something that would confound.", field="--subject", found=name,
                expected=", ".join(CONFOUNDERS), fix=f"leave it out: {rule[1]} is {rule[0]} anyway",
            )  # fmt: skip
        if not any(is_subject(key, "", [name]) for key in keys) and name not in CONFOUNDERS:
            raise UserError(
                "No confounder has that name.", field="--subject", found=name, fix=did_you_mean(name, CONFOUNDERS)
            )
    return names
