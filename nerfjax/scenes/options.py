"""Options of readers: what a format needs to be told beside where it is (``focal``, ``masks``, ``ndc``, …).

Options are the keyword arguments of a reader's ``read`` beyond those that all readers have. At the command line they
are one text, ``--options=focal=1170,masks=off`` (in a config, ``scene.options``); names and values are checked against
the signature of the reader that is chosen.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from nerfjax.errors import UserError, did_you_mean

COMMON = ("source", "downscale", "holdout", "axes", "say")
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", types.NoneType: "none"}


class Option(typing.NamedTuple):
    """An option of a reader: the types that it takes, and its default."""

    kinds: tuple[type, ...]
    default: Any


def reader_options(read: Callable) -> dict[str, Option]:
    """Returns the options of a reader by name, from its signature."""
    found = {}
    for name, parameter in inspect.signature(read, eval_str=True).parameters.items():
        if name not in COMMON and parameter.kind is not parameter.VAR_KEYWORD:
            kinds = typing.get_args(parameter.annotation) or (parameter.annotation,)
            found[name] = Option(kinds, parameter.default)
    return found


def parse_options(text: str) -> dict[str, str]:
    """Returns {"focal": "1170", …} of "focal=1170,…".

    Raises:
      UserError: a part is no KEY=VALUE, or a key occurs twice.
    """
    options: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (name and equals and value) or name in options:
            raise UserError(
                "An option is given twice." if name in options else "Options are not written as KEY=VALUE.",
                field="scene.options", found=text, expected="KEY=VALUE,KEY=VALUE",
            )  # fmt: skip
        options[name] = value
    return options


def checked_options(format: str, read: Callable, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options with values of the reader's types.

    Args:
      format: name of the reader.
      read: its function.
      given: values, or texts that stand for them.

    Raises:
      UserError: the reader has no such option, or it takes another kind of value.
    """
    known = reader_options(read)
    values = {}
    for name, value in given.items():
        if name not in known:
            raise UserError(
                "The format has no such option.", field="scene.options", found=f"{name} ({format})",
                expected=", ".join(known) or "none: this format has no options",
                fix=did_you_mean(name, known) if known else "leave it out",
            )  # fmt: skip
        kinds = known[name].kinds
        values[name] = _from_text(value, kinds) if isinstance(value, str) else value
        if type(values[name]) is int and float in kinds:
            values[name] = float(values[name])  # one number has one text
        if type(values[name]) not in kinds:
            raise UserError(
                "An option takes another kind of value.", field=f"scene.options: {name}", found=value,
                expected=" or ".join(_WORDS.get(kind, str(kind)) for kind in dict.fromkeys(kinds)),
            )  # fmt: skip
    return values


def _from_text(text: str, kinds: tuple[type, ...]) -> Any:
    """Returns the value that a text stands for; the text itself where it stands for none of the types."""
    word = text.lower()
    if word == "none" and types.NoneType in kinds:
        return None
    if bool in kinds and word in _TRUTH:
        return _TRUTH[word]
    for kind in (float, int):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                pass
    return text


def canonical(read: Callable, values: Mapping[str, Any]) -> str:
    """Returns the options that differ from the defaults as one text, sorted by name: what a fingerprint holds."""
    known = reader_options(read)
    return ",".join(f"{name}={values[name]}" for name in sorted(values) if values[name] != known[name].default)


def how_to_give(text: str) -> str:
    """Returns in words how an option is given, for the fix of an error: ``how_to_give("focal=1170")``."""
    return f"--options={text} (train: --config.scene.options={text})"
