"""``--config=NAME --config.KEY=VALUE …`` → a config, checked before anything compiles.

The values are parsed by ``ml_collections.config_flags`` against the types of the named config's own values, on a
``FlagValues`` of our own, so that no global flag exists.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import ml_collections
from absl import flags
from ml_collections import config_flags

from nerfjax.errors import UserError, did_you_mean
from nerfjax.train.configuration import FAMILIES, flat_keys, load_config
from nerfjax.train.curriculum import base_key


def parse_config(name_or_path: str, arguments: Sequence[str]) -> ml_collections.ConfigDict:
    """Loads a config and applies the command line's values.

    Args:
      name_or_path: a config file, or the name of one that ships with nerfjax.
      arguments: ``--config.KEY=VALUE`` each.

    Raises:
      UserError: an unknown key, or a value that does not fit the key's type.
    """
    base = load_config(name_or_path, None)
    overrides = overrides_from_flags(base, arguments)
    config = load_config(name_or_path, overrides)
    for key in idle_overrides(config, overrides):
        section = key.split(".")[0]
        print(f"note: config.{key} has no effect: config.{section}.name is {config[section].name}", file=sys.stderr)
    return config


def idle_overrides(config: ml_collections.ConfigDict, overrides: Iterable[str]) -> list[str]:
    """Returns the overridden keys that set options of members that are not chosen."""
    parts = ((key, key.split(".")) for key in overrides)
    options = [(key, section, rest[0]) for key, (section, *rest) in parts if section in FAMILIES and len(rest) == 2]
    # What is told of a sampler that "auto" may come to choose has an effect.
    return [key for key, section, member in options if config[section].name not in (member, "auto")]


def overrides_from_flags(config: ml_collections.ConfigDict, arguments: Sequence[str]) -> dict[str, Any]:
    """Returns the typed value of each ``--config.KEY=VALUE``, by the dotted KEY; the last of equal keys counts."""
    leaves = flat_keys(config)
    overrides: dict[str, Any] = {}
    for argument in arguments:
        key, _, text = argument.removeprefix("--config.").partition("=")
        # What a stage of the curriculum sets is of the type that the config's own key has.
        base = base_key(config, key) or key
        if base not in leaves:
            raise _unknown_key(key, text, leaves)
        overrides[key] = _free_value(text) if leaves[base] is None else _typed_value(config, leaves, base, text)
    return overrides


def _typed_value(config: ml_collections.ConfigDict, leaves: dict[str, Any], key: str, text: str) -> Any:
    argument = f"--config.{key}={text}"
    values = flags.FlagValues()
    expected = type(leaves[key]).__name__
    try:
        config_flags.DEFINE_config_dict(
            "config", config.copy_and_resolve_references(), flag_values=values, sys_argv=["nerfjax", argument]
        )
        values(["nerfjax", argument])
    except (flags.Error, ValueError, TypeError) as error:
        raise UserError(
            "A config value has the wrong type.",
            field=f"config.{key}",
            found=text,
            expected=f"{expected}, such as {leaves[key]!r}",
        ) from error
    return config_flags.get_override_values(values["config"])[key]


def _free_value(text: str) -> Any:
    """A key whose default is None has no type: a Python literal is taken as one, anything else as text."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _unknown_key(key: str, text: str, leaves: dict[str, Any]) -> UserError:
    members = sorted(leaf.removeprefix(f"{key}.") for leaf in leaves if leaf.startswith(f"{key}."))
    if members:
        return UserError(
            "A config key is a group of keys.",
            field=f"config.{key}",
            found=text,
            fix=f"set one of its keys, such as --config.{key}.{'name' if 'name' in members else members[0]}=…",
        )
    # The nearest key is looked for inside the group that the user named, if there is one, then everywhere.
    group = key.rpartition(".")[0]
    siblings = [leaf for leaf in leaves if group and leaf.rpartition(".")[0] == group]
    return UserError("Unknown config key.", field=f"config.{key}", fix=did_you_mean(key, siblings or leaves))
