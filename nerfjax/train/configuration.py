"""From a config to bound choices.

A config is an ``ml_collections.ConfigDict`` in which a choice is a name and one sub-dict per member of the family,
filled from the factories' signatures: ``config.sampler = {name: "proposal", proposal: {...}, stratified: {...}, ...}``.
Only the named member is bound and hashed. Every option is checked against the real signature before anything compiles.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

import nerfjax
from nerfjax.background import BACKGROUNDS
from nerfjax.errors import UserError, did_you_mean
from nerfjax.fields import DENSITY_NETWORKS, FIELDS
from nerfjax.losses import charbonnier, l2
from nerfjax.pixels import PIXELS
from nerfjax.samplers import SAMPLERS
from nerfjax.samplers.auto import KEYS, auto
from nerfjax.train.curriculum import SECTION, StagePlan, flat_keys, set_stage, stage_plans
from nerfjax.train.optimizers import OPTIMIZERS, SCHEDULES
from nerfjax.train.penalties import PENALTIES

COLOR_LOSSES = {"l2": l2, "charbonnier": charbonnier}
FAMILIES: dict[str, dict[str, Callable]] = {
    "sampler": {**SAMPLERS, "auto": auto},  # "auto" is replaced by another one (``train.automatic``)
    "network": DENSITY_NETWORKS,
    "field": FIELDS,
    "pixels": PIXELS,
    "background": BACKGROUNDS,
    "loss": COLOR_LOSSES,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
}
# Supplied by the builder, never by a config.
CONTEXT = frozenset({
    "geometry", "networks", "schedule", "precision", "deterministic", "prediction", "target", "weight", "ray_share",
    "batch_rays",
})  # fmt: skip
# Where a run lives, how often it reports and how far it goes do not change what a step computes.
UNHASHED = frozenset({
    "scene.source", "scene.format", "scene.examine", "train.steps", "train.log_every", "train.eval_every",
    "train.checkpoint_every", "train.keep_latest", "train.keep_every", "train.keep_best", "train.steps_per_dispatch",
    "train.compile_ahead", "train.on_divergence", "train.rollback_factor", "train.logger",
    "train.price_per_device_hour", "parallel", "evaluation.memory_mb", "data.memory_mb", "data.prepare",
})  # fmt: skip


def factory_options(factory: Callable) -> dict[str, Any]:
    """Returns the options of a factory and their defaults, from its signature."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.default is not parameter.empty and name not in CONTEXT
    }


def family(members: Mapping[str, Callable], name: str, *, type_safe: bool = True) -> ConfigDict:
    """Returns the section of a family: the chosen name and each member's options.

    Args:
      members: the family's table.
      name: the chosen member.
      type_safe: whether an option keeps the type of its default.
    """
    sections = {member: ConfigDict(factory_options(make), type_safe=type_safe) for member, make in members.items()}
    return ConfigDict({"name": name, **sections})


def default_config() -> ConfigDict:
    """Returns the config that every file of ``configs/`` starts from; all keys exist, and their set is closed."""
    config = ConfigDict()
    # Near and far are in scene units; None is what the capture says.
    config.scene = ConfigDict(
        dict(source="analytic:toys", format="auto", convention="auto", downscale=1, holdout=8, options="",
             examine=True, near=None, far=None)
    )  # fmt: skip
    # What follows ``memory_mb`` is for source "stream"; the last three for its layout "views".
    config.data = ConfigDict(
        dict(source="resident", prepare=False, memory_mb=512, layout="rays", images_per_batch=8, patch=1, reuse=8)
    )
    config.train = ConfigDict(
        dict(steps=20_000, batch_rays=4096, seed=0, log_every=100, eval_every=0, checkpoint_every=1000,
             steps_per_dispatch=10, coarse_weight=1.0, distortion_weight=0.0, depth_weight=0.0, rungs=1,
             compile_ahead=True, ema=0.0, keep_latest=2, keep_every=0, keep_best=0, on_divergence="stop",
             rollback_factor=0.3, logger="", price_per_device_hour=0.0,
             **{f"{name}_weight": 0.0 for name in PENALTIES})
    )  # fmt: skip
    config.curriculum = ConfigDict()
    config.render = ConfigDict(dict(coarse_field=False, opaque_end=False))
    config.evaluation = ConfigDict(dict(memory_mb=1024))
    config.precision = "default"
    config.parallel = ConfigDict(dict(devices=0))
    config.sampler = family(SAMPLERS, "stratified")
    config.sampler.auto = ConfigDict(factory_options(auto), type_safe=False)
    for member in SAMPLERS:
        if "spacing" in config.sampler[member]:
            config.sampler[member].spacing = "auto"
    # An option of the proposal networks may become a tuple, a value for each round.
    config.network = family(DENSITY_NETWORKS, "hashgrid", type_safe=False)
    config.field = family(FIELDS, "instant_ngp")
    config.pixels = family(PIXELS, "uniform")
    config.background = family(BACKGROUNDS, "white")
    config.loss = family(COLOR_LOSSES, "l2")
    config.optimizer = family(OPTIMIZERS, "adam")
    config.schedule = family(SCHEDULES, "log_lerp")
    for member in SCHEDULES:
        config.schedule[member].steps = 0  # as long as the run
    config.lock()
    config.curriculum.unlock()  # a config file may add stages
    return config


def bind(section: str, config: ConfigDict | Mapping[str, Any], **context: Any) -> Any:
    """Makes the named member of a family from its options.

    Args:
      section: name of the family, a key of ``FAMILIES``.
      config: the whole config.
      context: what the builder supplies; a member takes what its signature names.

    Raises:
      UserError: the name or an option does not exist.
    """
    name, options = chosen(section, config)
    make = FAMILIES[section][name]
    parameters = inspect.signature(make).parameters
    for option in options:
        if option not in parameters:
            raise UserError(
                f"{section} {name!r} has no option {option!r}", field=f"config.{section}.{name}.{option}",
                fix=did_you_mean(option, factory_options(make)),
            )  # fmt: skip
    return make(**options, **{key: value for key, value in context.items() if key in parameters})


def chosen(section: str, config: ConfigDict | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the chosen member's name and options.

    Raises:
      UserError: the family has no such member.
    """
    name, members = config[section]["name"], FAMILIES[section]
    if name not in members:
        raise UserError(
            f"there is no {section} {name!r}", field=f"config.{section}.name", found=repr(name),
            expected=", ".join(members), fix=did_you_mean(name, members),
        )  # fmt: skip
    return name, dict(config[section].get(name, {}))


def schedule_section(config: ConfigDict | Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schedule's section with its length resolved: 0 stands for the length of the run."""
    name, options = chosen("schedule", config)
    return {"name": name, name: {**options, "steps": options.get("steps") or config["train"]["steps"]}}


def find_config(name_or_path: str) -> Path:
    """Returns the file of a config given by path or by the name of a shipped one.

    Raises:
      UserError: there is no such file.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    package = Path(nerfjax.__file__).parent
    shipped = [folder for folder in (package / "configs", package.parent / "configs") if folder.is_dir()]
    names = {file.stem: file for folder in shipped for file in sorted(folder.glob("[!_]*.py"))}
    if (
        path.suffix not in ("", ".py")
        or path.stem not in names
        or (path.parent != Path() and path.parent.name != "configs")
    ):
        raise UserError(
            f"there is no config {name_or_path!r}", field="--config", found=name_or_path,
            expected="a path to a config file, or one of: " + ", ".join(names), fix=did_you_mean(path.stem, names),
        )  # fmt: skip
    return names[path.stem]


def load_config(name_or_path: str, overrides: Mapping[str, Any] | None = None) -> ConfigDict:
    """Loads a config by path or name and changes single values of it.

    Args:
      name_or_path: "nerfjax", or a path to a file with ``get_config(arg=None)``; after a colon, the argument.
      overrides: {"sampler.name": "stratified", "train.steps": 100, ...}.

    Returns:
      The config, locked.

    Raises:
      UserError: there is no such config, key or type of value.

    Example:
      >>> load_config("demo", {"train.steps": 20}).train.steps
      20
    """
    name, _, argument = name_or_path.partition(":")
    path = find_config(name)
    spec = importlib.util.spec_from_file_location(f"nerfjax_config_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise UserError("a config file must define get_config()", file=path, fix="see configs/demo.py")
    config = module.get_config(argument or None)
    for key, value in (overrides or {}).items():
        override(config, key, value)
    if config.sampler.name == "auto":
        by_hand = {key for key in overrides or {} if is_automatic_key(key)}
        config.sampler.auto.keep = tuple(sorted({*config.sampler.auto.keep, *by_hand}))
    return config


def is_automatic_key(key: str) -> bool:
    """Says whether sampler "auto" may choose a key's value: one that is given by hand is to stay."""
    if key == KEYS["sampler"] or key.startswith("sampler.auto."):
        return False
    return any(re.fullmatch(re.sub(r"\{\w+\}", r"\\w+", place), key) for place in KEYS.values())


def override(config: ConfigDict, key: str, value: Any) -> None:
    """Sets one existing key, checking its type; of the curriculum, a whole stage, or all of it, too.

    Raises:
      UserError: the key does not exist, or the value is of another type.
    """
    if key.partition(".")[0] == SECTION:
        set_stage(config, key, value)
        return
    known = flat_keys(config)
    if key not in known:
        raise UserError(f"the config has no key {key!r}", field=f"config.{key}", fix=did_you_mean(key, known))
    try:
        # A proposal network's option may be a tuple, a value for each round, even in a config read from JSON.
        with config.ignore_type() if key.startswith("network.") else contextlib.nullcontext():
            config.update_from_flattened_dict({key: value})
    except (TypeError, ValueError) as error:
        raise UserError(
            f"config.{key} takes another type of value", field=f"config.{key}", found=repr(value),
            expected=type(known[key]).__name__,
        ) from error  # fmt: skip


def stage_config(config: ConfigDict, plan: StagePlan) -> ConfigDict:
    """Returns the whole config of one stage of the curriculum, without a curriculum of its own.

    Raises:
      UserError: a value is of another type than the config's own.
    """
    changed = config.copy_and_resolve_references()
    changed[SECTION] = ConfigDict()
    changed.scene.downscale *= plan.downscale
    for key, value in plan.changes.items():
        try:
            override(changed, key, value)
        except UserError as error:
            raise UserError(
                f"stage {plan.index} of the curriculum gives {key} another type of value",
                field=f"config.curriculum.stage{plan.index}.{key}", found=repr(value),
                expected=f"{type(flat_keys(config)[key]).__name__}, such as {flat_keys(config)[key]!r}",
            ) from error  # fmt: skip
    return changed


def config_to_json(config: ConfigDict | Mapping[str, Any]) -> dict[str, Any]:
    """Returns the resolved config as plain JSON values (tuples become lists)."""
    return json.loads(json.dumps({key: _plain(value) for key, value in config.items()}))


def _plain(value: Any) -> Any:
    if isinstance(value, (ConfigDict, dict)):
        return {key: _plain(item) for key, item in value.items()}
    return value


def config_from_json(document: Mapping[str, Any]) -> ConfigDict:
    """Returns the config that ``config_to_json`` wrote."""

    def restore(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: restore(item) for key, item in value.items()}
        return tuple(value) if isinstance(value, list) else value

    return ConfigDict(restore(document)).lock()


def bound_config(config: ConfigDict | Mapping[str, Any]) -> dict[str, Any]:
    """Returns {"a.b": value} of what decides a run's numbers: chosen members only, without paths, cadences, devices.

    Of each stage of the curriculum, "curriculum.stage1.until" and what differs from the rest of the config.
    """
    base = _bound({**config, SECTION: {}})
    flat = dict(base)
    for plan in stage_plans(config) if config.get(SECTION) else ():
        stage, prefix = _bound(stage_config(ConfigDict(config), plan)), f"{SECTION}.stage{plan.index}."
        different = {key: stage.get(key) for key in {*base, *stage} if stage.get(key) != base.get(key)}
        flat |= {prefix + key: value for key, value in ({"until": plan.until} | different).items()}
    return {key: flat[key] for key in sorted(flat)}


def _bound(config: ConfigDict | Mapping[str, Any]) -> dict[str, Any]:
    document = config_to_json(config)
    for section in FAMILIES:
        name, options = chosen(section, document)
        document[section] = {"name": name, name: options}
    document["schedule"] = schedule_section(document)
    if not sampler_takes("networks", config):
        document.pop("network")
    if not sampler_takes("ray_share", config):
        document["train"].pop("rungs")
    if document["data"]["source"] == "resident":
        document["data"] = {"source": "resident"}
    flat = flat_keys(document)
    return {key: flat[key] for key in sorted(flat) if key not in UNHASHED and key.split(".")[0] not in UNHASHED}


def sampler_takes(keyword: str, config: ConfigDict | Mapping[str, Any]) -> bool:
    """Says whether the chosen sampler's factory wants something from the builder."""
    return keyword in inspect.signature(FAMILIES["sampler"][chosen("sampler", config)[0]]).parameters


def config_hash(config: ConfigDict | Mapping[str, Any]) -> str:
    """Returns the SHA-256 of the canonical JSON of ``bound_config``."""
    return hashlib.sha256(json.dumps(bound_config(config), sort_keys=True).encode()).hexdigest()


def config_differences(one: ConfigDict, other: ConfigDict) -> dict[str, tuple[Any, Any]]:
    """Returns {key: (value in one, value in other)} where the bound configs differ."""
    a, b = bound_config(one), bound_config(other)
    return {key: (a.get(key), b.get(key)) for key in sorted({*a, *b}) if a.get(key) != b.get(key)}
