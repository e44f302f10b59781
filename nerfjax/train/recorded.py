"""The config of a recorded run, by whatever version, as the flat options that took part in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from nerfjax.errors import UserError
from nerfjax.runs.records import chosen_options
from nerfjax.train import configuration


def recorded_options(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``{"a.b": value}`` of what a recorded config bound.

    Args:
      document: the config of a manifest. Keys that its version did not know have this version's defaults; keys and
        members that this version does not know are kept.
    """
    complete = _filled(document, configuration.config_to_json(configuration.default_config()))
    every = chosen_options(complete)
    try:
        bound = configuration.bound_config(configuration.config_from_json(complete))
    except (UserError, KeyError, TypeError, ValueError, AttributeError):
        return every
    # A length of 0 stands for the run's own: resolved, it would differ wherever train.steps does.
    length = f"schedule.{bound['schedule.name']}.steps"
    unhashed = {k: v for k, v in every.items() if {k, k.split(".")[0]} & configuration.UNHASHED}
    return {**unhashed, **bound, **({length: every[length]} if length in every else {})}


def complete_config(document: Mapping[str, Any]) -> ConfigDict:
    """Returns the config of a manifest; keys that its version did not know have this version's defaults."""
    return configuration.config_from_json(
        _filled(document, configuration.config_to_json(configuration.default_config()))
    )


def _filled(document: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Fills in defaults under a JSON object, at every depth."""
    both = {key: document.get(key, default) for key, default in defaults.items()}
    for key, value in document.items():
        default = defaults.get(key)
        both[key] = _filled(value, default) if isinstance(value, Mapping) and isinstance(default, Mapping) else value
    return both
