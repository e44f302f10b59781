"""The curriculum: what of a run changes at which step.

``config.curriculum`` holds the stages ``stage0``, ``stage1``, …; empty, it is one stage that lasts the whole run::

    config.curriculum = dict(
        stage0=dict(until=500, sampler="stratified", batch_rays=512, downscale=4),
        stage1=dict(until=2000, sampler=dict(name="proposal", proposal=dict(num_final=24)), distortion_weight=0.0),
        stage2=dict(sampler="occupancy"),
    )

A stage lasts up to its step ``until``; the last one needs none. What it does not name is as in the rest of the config,
not as in the stage before. It may name any option of ``FAMILIES`` (``sampler="proposal"`` is short for its name), any
option of the field but which one it is, the keys of ``config.train`` that ``train_keys`` lists, and ``downscale``, a
factor on top of ``scene.downscale`` for the training images alone (evaluation keeps the run's resolution).
``--config.curriculum.stage1.KEY=VALUE`` and ``load_config(name, {"curriculum.stage1.KEY": value})`` set a single one,
and make the stage where there is none; ``load_config(name, {"curriculum": {…}})`` sets the whole.

At a boundary (``state.shared_leaves``) parameters and their optimizer moments carry over where path, shape and type are
the same, those of a sampler only where the sampler and its networks are the same members; grids, counters and the pixel
sampler's state as a whole or not at all; the rest is what the seed makes of it at step 0. A field of another resolution
is resampled (``train.resampling``). A state of step ``until`` is still that of the stage that ends there, so a
checkpoint, an evaluation and the end of a run at a boundary show what was trained; what goes on from it converts it
first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from nerfjax.errors import UserError, did_you_mean

FAMILIES = ("sampler", "network", "pixels", "loss")
TRAIN_KEYS = ("batch_rays", "rungs")  # and whatever ends in "_weight"
SECTION = "curriculum"


class StagePlan(NamedTuple):
    """What a config says of one stage.

    Attributes:
      index: its place, from 0.
      begin: the step at which it begins.
      until: the step at which it ends; None for the end of the run.
      downscale: factor on top of ``scene.downscale``.
      changes: {key of the config: value}, e.g. {"sampler.name": "proposal", "train.batch_rays": 512}.
    """

    index: int
    begin: int
    until: int | None
    downscale: int
    changes: dict[str, Any]


def train_keys(config: Any) -> tuple[str, ...]:
    """Returns the keys of ``config.train`` that a stage may change."""
    return tuple(key for key in config["train"] if key in TRAIN_KEYS or key.endswith("_weight"))


def stage_keys(config: Any) -> dict[str, str]:
    """Returns {key of a stage: the config's key whose type its value has} of all that a stage may name."""
    keys = {"until": "train.steps", "downscale": "scene.downscale"}
    keys |= {key: f"train.{key}" for key in train_keys(config)}
    for family in FAMILIES:
        keys[family] = f"{family}.name"
        keys |= {key: key for key in flat_keys(config[family], f"{family}.")}
    # Not the field's name: what has been learned would be lost.
    keys |= {key: key for key in flat_keys(config["field"], "field.") if key != "field.name"}
    return keys


def base_key(config: Any, key: str) -> str | None:
    """Returns the config's key whose type ``curriculum.stageN.KEY`` has; None for a key of another section.

    Raises:
      UserError: a stage has no such key.
    """
    section, _, rest = key.partition(".")
    if section != SECTION:
        return None
    stage, _, inner = rest.partition(".")
    if not re.fullmatch(r"stage\d+", stage) or not inner:
        raise UserError(
            "the curriculum's keys belong to its stages", field=f"config.{key}",
            expected="config.curriculum.stage0.until, config.curriculum.stage1.sampler.name, …",
            fix=None if inner else "set one of the stage's keys, such as until",
        )  # fmt: skip
    return _stage_key(config, stage, inner)[1]


def set_stage(config: ConfigDict, key: str, value: Any) -> None:
    """Sets the whole curriculum, a stage of it, or one key of a stage.

    Args:
      config: the config, changed in place.
      key: "curriculum", "curriculum.stage1" or "curriculum.stage1.sampler.name".
      value: a mapping, or the key's value.

    Raises:
      UserError: a stage has no such key.
    """
    _, _, rest = key.partition(".")
    stage, _, inner = rest.partition(".")
    if inner:
        base_key(config, key)
        before = _canonical(config, stage, config[SECTION].get(stage, {}))
        stages = {**_plain(config[SECTION]), stage: before | _canonical(config, stage, {inner: value})}
    elif not isinstance(value, (Mapping, ConfigDict)):
        raise UserError("a curriculum holds stages", field=f"config.{key}", found=repr(value), expected="a dict")
    else:
        stages = {**_plain(config[SECTION]), stage: value} if stage else _plain(value)
    config[SECTION] = ConfigDict({name: _nested(_canonical(config, name, stages[name])) for name in stages})


def stage_plans(config: Any) -> tuple[StagePlan, ...]:
    """Returns the stages of a config; one without changes where it has no curriculum.

    Raises:
      UserError: a stage has another name than its place, a key that does not exist, or an ``until`` out of order.
    """
    section = config.get(SECTION) or {}
    for name in section:
        _check_name(name, len(section))
    plans, begin = [], 0
    for index in range(len(section)):
        name = f"stage{index}"
        given = _canonical(config, name, section[name])
        until, downscale = given.pop("until", None), given.pop("downscale", 1)
        _check_number(f"{name}.downscale", downscale)
        last = index == len(section) - 1
        _check_until(name, until, begin, last, config["train"]["steps"])
        changes = {stage_keys(config)[key]: value for key, value in given.items()}
        if changes.get("sampler.name") == "auto":
            raise UserError(
                "what a capture asks for is chosen for the whole run", field=f"config.curriculum.{name}.sampler.name",
                found="auto", fix="give config.sampler.name=auto, which stages without a sampler of their own follow",
            )  # fmt: skip
        plans.append(StagePlan(index, begin, None if last else until, downscale, changes))
        begin = until
    return tuple(plans) or (StagePlan(0, 0, None, 1, {}),)


def _check_name(name: str, count: int) -> None:
    names = [f"stage{index}" for index in range(count)]
    if name not in names:
        raise UserError(
            "the stages of a curriculum are numbered from 0, without gaps", field=f"config.curriculum.{name}",
            expected=", ".join(names), fix=did_you_mean(name, names),
        )  # fmt: skip


def _check_number(field: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(
            f"config.curriculum.{field} must be a positive integer", field=f"config.curriculum.{field}",
            found=repr(value),
        )  # fmt: skip


def _check_until(name: str, until: Any, begin: int, last: bool, steps: int) -> None:
    field = f"config.curriculum.{name}.until"
    if until is None and last:
        return
    if until is None:
        raise UserError("a stage that is not the last must say when it ends", field=field, expected=f"above {begin}")
    _check_number(f"{name}.until", until)
    if until <= begin:
        raise UserError(
            "the stages of a curriculum must end one after the other", field=field, found=until,
            expected=f"above {begin}, where the stage before it ends",
        )  # fmt: skip
    if last and until < steps:
        raise UserError(
            "the curriculum ends before the run", field=field, found=until, expected=f"{steps} steps, or no until",
            fix="leave the last stage's until out, or add a stage",
        )  # fmt: skip


def _stage_key(config: Any, stage: str, key: str) -> tuple[str, str]:
    """Returns (the key's usual spelling, the config's key) of a stage's key."""
    keys = stage_keys(config)
    short = key.removeprefix("train.")
    key = short if short in train_keys(config) else f"{key}.name" if key in FAMILIES else key
    if key not in keys:
        raise UserError(
            f"a stage cannot change {key!r}", field=f"config.curriculum.{stage}.{key}", fix=did_you_mean(key, keys),
            expected=f"until, downscale, {', '.join(train_keys(config))}, or an option of field, {', '.join(FAMILIES)}",
        )  # fmt: skip
    return key, keys[key]


def _canonical(config: Any, stage: str, given: Any) -> dict[str, Any]:
    """Returns {dotted key: value} of a stage, in one spelling."""
    if not isinstance(given, (Mapping, ConfigDict)):
        raise UserError("a stage is a dict", field=f"config.curriculum.{stage}", found=repr(given))
    found = {}
    for key, value in flat_keys(given).items():
        key = _stage_key(config, stage, key)[0]
        if key in found:
            raise UserError("a stage names a key twice", field=f"config.curriculum.{stage}.{key}")
        found[key] = value
    return found


def flat_keys(config: ConfigDict | Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns {"a.b": value} of all leaves."""
    flat = {}
    for key, value in config.items():
        path = f"{prefix}{key}"
        flat.update(flat_keys(value, path + ".") if isinstance(value, (ConfigDict, Mapping)) else {path: value})
    return flat


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *groups, leaf = key.split(".")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
        place[leaf] = value
    return tree


def _plain(section: Any) -> dict[str, Any]:
    return section.to_dict() if isinstance(section, ConfigDict) else dict(section)
