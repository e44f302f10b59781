"""``config.sampler.name="auto"``: the explicit configuration that it stands for on a scene.

What a user has set stays: a field of ``config.sampler.auto`` that is not None, and every key that
``config.sampler.auto.keep`` names. ``load_config`` and the command line write into ``keep`` what they are told, so
that ``--config.train.batch_rays=512`` means what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from nerfjax.errors import UserError, did_you_mean
from nerfjax.samplers.auto import DEFAULT, KEYS, recommend
from nerfjax.samplers.scene_facts import SceneFacts, measure
from nerfjax.scenes import Scene
from nerfjax.scenes.silhouettes import visual_hull
from nerfjax.train import configuration

AUTO = "auto"


class Setting(NamedTuple):
    """A key of the config with its ``value`` and the ``reason`` for it, a sentence."""

    key: str
    value: Any
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Returns a JSON-able dictionary."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return {"key": self.key, "value": value, "reason": self.reason}

    def __str__(self) -> str:
        value = f"{self.value:.4g}" if isinstance(self.value, float) else str(self.value)
        return f"{self.key} = {value}: {self.reason}"


def is_automatic(config: ConfigDict | Mapping[str, Any]) -> bool:
    """Says whether the sampler is still to be chosen."""
    return config["sampler"]["name"] == AUTO


def facts_of(scene: Scene) -> SceneFacts:
    """Measures a scene; reads a few images where they are silhouettes of an object and there are no points."""
    points = scene.points if scene.points is not None and len(scene.points) else None
    if points is not None or not scene.geometry.bounded:
        return measure(scene.geometry, points=points)
    hull = visual_hull(scene)
    if hull is None:
        return measure(scene.geometry)
    return measure(scene.geometry, hull=hull.points, hull_share=hull.share, silhouette=hull.pixels)


def settings_for(config: ConfigDict, scene: Scene) -> list[Setting]:
    """Returns the explicit settings that "auto" stands for.

    Args:
      config: as from ``load_config``, with ``sampler.name="auto"`` or any other.
      scene: the capture.

    Raises:
      UserError: a value set by hand is wrong, is set twice, or is for an option that the sampler does not have.
    """
    options, known = config.sampler[AUTO], configuration.flat_keys(config)
    for key in options.keep:
        if key not in known:
            raise UserError(
                "the config has no such key", field="config.sampler.auto.keep", found=key, fix=did_you_mean(key, known)
            )
    sampler = options.sampler or DEFAULT
    configuration.chosen("sampler", {"sampler": {"name": sampler}})
    if sampler == AUTO:
        raise UserError("auto cannot choose itself", field="config.sampler.auto.sampler", found=sampler)
    places = {field: _place(field, config, sampler) for field in KEYS}
    by_hand = {field: known[key] for field, key in places.items() if key in options.keep and field != "sampler"}
    by_hand |= {field: known[places[field]] for field in ("near", "far") if known[places[field]] is not None}
    for field, value in ((field, options[field]) for field in KEYS):
        if value is None:
            continue
        if places[field] not in known:
            raise UserError(
                f"the sampler {sampler!r}, the field or the network has no such option",
                field=f"config.sampler.auto.{field}", found=value, fix="leave it at None",
            )  # fmt: skip
        if field in by_hand and by_hand[field] != value:
            raise UserError(
                "a value is set twice", field=f"config.sampler.auto.{field}", found=value,
                expected=f"None, since config.{places[field]} is {by_hand[field]!r}",
            )  # fmt: skip
        by_hand[field] = value
    facts = facts_of(with_bounds(scene, by_hand.get("near"), by_hand.get("far")))
    choices = recommend(facts, by_hand, evaluations=options.evaluations).choices
    return [Setting(places[c.field], c.value, c.reason) for c in choices if places[c.field] in known]


def recommended(scene: Scene) -> list[Setting]:
    """Returns the settings that the default method gets for a scene; none where the scene contradicts itself."""
    try:
        return settings_for(configuration.load_config("nerfjax", {"sampler.name": AUTO}), scene)
    except UserError:
        return []


def with_bounds(scene: Scene, near: float | int | None, far: float | int | None) -> Scene:
    """Returns the scene with other distances between which rays are integrated; None is what the capture says.

    Raises:
      UserError: near is not less than far.
    """
    geometry = scene.geometry
    if near is None and far is None:
        return scene
    near, far = (float(own) if given is None else given for given, own in ((near, geometry.near), (far, geometry.far)))
    if not (isinstance(near, int | float) and isinstance(far, int | float) and 0 <= near < far < float("inf")):
        raise UserError(
            "near is not less than far", field="config.scene.near, config.scene.far", found=f"{near} and {far}",
            expected="0 <= near < far, scene units",
        )  # fmt: skip
    return replace(scene, geometry=geometry.replace(near=np.float32(near), far=np.float32(far)))


def resolve_auto(config: ConfigDict, scene: Scene, *, say: Callable[[str], None] | None = None) -> ConfigDict:
    """Returns the explicit config that a config with ``sampler.name="auto"`` stands for; any other as it is.

    Args:
      config: as from ``load_config``.
      scene: the capture.
      say: takes the settings with their reasons, lines of one text.

    Raises:
      UserError: see ``settings_for``.
    """
    if not is_automatic(config):
        return config
    settings = settings_for(config, scene)
    if say is not None:
        say("\n".join(explain(settings)))
    return _explicit(config, {setting.key: setting.value for setting in settings})


def resolve_as_before(config: ConfigDict, earlier: Mapping[str, Any]) -> ConfigDict:
    """Returns the explicit config with the values that "auto" stood for when a run began, whatever it would choose now.

    Args:
      config: as from ``load_config``.
      earlier: the config that the run began with, as JSON.

    Returns:
      The config as it is where it is explicit already, or where the run did not begin with "auto".

    Raises:
      UserError: other things were set by hand then.
    """
    if not is_automatic(config):
        return config
    asked, asked_then = configuration.config_to_json(config)["sampler"][AUTO], earlier["sampler"].get(AUTO)
    asked = {**asked, "resolved": True}
    if not asked_then or not asked_then.get("resolved"):
        return config
    if asked_then != asked:
        changes = [f"{k}: {asked_then.get(k)!r} there, {v!r} now" for k, v in asked.items() if v != asked_then.get(k)]
        raise UserError(
            "the run folder holds a run of another configuration", field="config.sampler.auto",
            found="; ".join(changes), fix="choose another --workdir, or give what the run was started with",
        )  # fmt: skip
    then, known = (configuration.flat_keys(c) for c in (configuration.config_from_json(earlier), config))
    places = [_place(field, config, earlier["sampler"]["name"]) for field in KEYS]
    return _explicit(
        config,
        {key: then[key] for key in places if key in then and key in known}
        | {key: known[key] for key in asked["keep"] if key in known},
    )


def explain(settings: list[Setting]) -> list[str]:
    """Returns the settings and their reasons as lines."""
    return ["sampling, as config.sampler.name=auto chooses it for this capture:", *(f"  {s}" for s in settings)]


def _explicit(config: ConfigDict, values: Mapping[str, Any]) -> ConfigDict:
    resolved = config.copy_and_resolve_references()
    for key, value in values.items():
        configuration.override(resolved, key, value)
    resolved.sampler[AUTO].resolved = True
    return resolved


def _place(field: str, config: ConfigDict, sampler: str) -> str:
    """The key of a field's value, for the members that are chosen."""
    return KEYS[field].format(sampler=sampler, network=config.network.name, field=config.field.name)
