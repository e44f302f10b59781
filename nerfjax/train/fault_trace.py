"""Runs a program one operation at a time and says where its first non-finite number comes from.

Every value that is not finite carries its origin: the operation that made it from finite ones. What a selection
(``jnp.where``) throws away takes its origin along, so that an infinity which nobody uses is blamed for nothing. Loops
count as one operation. Tensors are known by the names that ``numerics.named`` gave them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nerfjax

# Operations that are a program themselves, and where they keep it.
NESTED = frozenset({
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "remat2", "checkpoint",
})  # fmt: skip
PROGRAMS = ("jaxpr", "call_jaxpr")
CALLERS = 3  # files whose lines are named for an operation


class Origin(NamedTuple):
    """What made a value that is not finite.

    Attributes:
      operation: the operation, by XLA's name, e.g. "exp"; or the input that it came with.
      place: "FILE:LINE (FUNCTION)" inside nerfjax; None where it is not known.
    """

    operation: str
    place: str | None = None

    def __str__(self) -> str:
        return self.operation if self.place is None else f"{self.operation} at {self.place}"


class TensorReport(NamedTuple):
    """What is known of one tensor.

    Attributes:
      name: its name.
      shape: its shape.
      nan, above, below: how many of its numbers are NaN, +inf and -inf.
      least, largest: of those that are finite; None where none is.
      origin: where the first of the others came from; None where all are finite.
    """

    name: str
    shape: tuple[int, ...]
    nan: int
    above: int
    below: int
    least: float | None
    largest: float | None
    origin: Origin | None

    @property
    def finite(self) -> bool:
        """Whether all numbers are."""
        return not (self.nan or self.above or self.below)


def report_tensor(name: str, value: Any, origin: Origin | None = None) -> TensorReport:
    """Counts what is in a tensor."""
    numbers = np.asarray(jax.device_get(value)).astype(np.float32)
    finite = numbers[np.isfinite(numbers)]
    least, largest = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    counts = (int(np.isnan(numbers).sum()), int(np.isposinf(numbers).sum()), int(np.isneginf(numbers).sum()))
    return TensorReport(name, numbers.shape, *counts, least, largest, origin)


class FaultTrace:
    """One run of a program.

    Args:
      program: as from ``jax.make_jaxpr``.
      inputs: its arguments, flat.
      input_names: their names.
      output_names: of its outputs.

    Attributes:
      tensors: of floating-point numbers: the inputs that are used, the named tensors in the order of computation, the
        outputs.
    """

    def __init__(self, program: Any, inputs: Sequence[Any], input_names: Sequence[str], output_names: Sequence[str]):
        self.tensors: list[TensorReport] = []
        self._seen: dict[str, int] = {}
        known = [(value, _input_origin(value, name)) for value, name in zip(inputs, input_names, strict=True)]
        used = {variable for eqn in program.jaxpr.eqns for variable in eqn.invars if not _is_literal(variable)}
        for (value, origin), name, variable in zip(known, input_names, program.jaxpr.invars, strict=True):
            if variable in used:
                self._report(name, value, origin)
        outputs = self._run(program.jaxpr, program.consts, known)
        for (value, origin), name in zip(outputs, output_names, strict=True):
            self._report(name, value, origin)

    @property
    def first(self) -> TensorReport | None:
        """The first tensor that is not finite."""
        return next((tensor for tensor in self.tensors if not tensor.finite), None)

    def _report(self, name: str, value: Any, origin: Origin | None) -> None:
        if _is_float(value):
            count = self._seen[name] = self._seen.get(name, 0) + 1
            self.tensors.append(report_tensor(name if count == 1 else f"{name} ({count})", value, origin))

    def _run(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[tuple[Any, Origin | None]]) -> list:
        known: dict[Any, tuple[Any, Origin | None]] = dict(zip(jaxpr.invars, inputs, strict=True))
        known |= {variable: (value, None) for variable, value in zip(jaxpr.constvars, consts, strict=True)}
        last_use = {v: place for place, eqn in enumerate(jaxpr.eqns) for v in eqn.invars if not _is_literal(v)}
        kept = {v for v in jaxpr.outvars if not _is_literal(v)}

        def read(variable: Any) -> tuple[Any, Origin | None]:
            return (variable.val, None) if _is_literal(variable) else known[variable]

        for place, eqn in enumerate(jaxpr.eqns):
            known |= zip(eqn.outvars, self._operation(eqn, [read(v) for v in eqn.invars]), strict=True)
            done = {v for v in [*eqn.invars, *eqn.outvars] if not _is_literal(v) and last_use.get(v, -1) <= place}
            for variable in done - kept:  # a step's values together need not fit into memory
                known.pop(variable, None)
        return [read(v) for v in jaxpr.outvars]

    def _operation(self, eqn: Any, inputs: list[tuple[Any, Origin | None]]) -> list[tuple[Any, Origin | None]]:
        inner = next((eqn.params[key] for key in PROGRAMS if key in eqn.params), None)
        if eqn.primitive.name not in NESTED or inner is None:
            traced = [(value, _origin(eqn, inputs, value)) for value in _evaluate(eqn, inputs)]
            if eqn.primitive.name == "name":
                self._report(eqn.params["name"], *traced[0])
            return traced
        closed = hasattr(inner, "consts")
        return self._run(inner.jaxpr if closed else inner, inner.consts if closed else (), inputs)


def _evaluate(eqn: Any, inputs: Sequence[tuple[Any, Origin | None]]) -> Sequence[Any]:
    values = eqn.primitive.bind(*(value for value, _ in inputs), **eqn.params)
    return values if eqn.primitive.multiple_results else [values]


def _origin(eqn: Any, inputs: Sequence[tuple[Any, Origin | None]], output: Any) -> Origin | None:
    """Returns where an output's first non-finite number came from; None where all are finite."""
    bad = _not_finite(output)
    if bad is None:
        return None
    if eqn.primitive.name == "select_n":
        which, *cases = inputs
        for number, (value, origin) in enumerate(cases):
            if origin is not None and np.any(bad & (np.asarray(which[0]) == number) & ~np.isfinite(np.asarray(value))):
                return origin
    suspects = [(value, origin) for value, origin in inputs if origin is not None]
    for value, origin in suspects:
        there = _not_finite(value)
        if there is not None and there.shape == bad.shape and np.any(there & bad):
            return origin
    return suspects[0][1] if suspects else Origin(eqn.primitive.name, _place(eqn))


def _place(eqn: Any) -> str | None:
    """Returns the lines of nerfjax that asked for an operation, the innermost first, where jax remembers them."""
    home = os.path.dirname(nerfjax.__file__)
    traceback = getattr(getattr(eqn, "source_info", None), "traceback", None)
    lines: dict[str, str] = {}  # the innermost line of each file: a product's own is in the file of all products
    for frame in getattr(traceback, "frames", ()):
        if frame.file_name.startswith(home) and frame.file_name != __file__:
            file = os.path.relpath(frame.file_name, os.path.dirname(home))
            lines.setdefault(file, f"{file}:{frame.line_num} ({frame.function_name})")
    return ", called at ".join(list(lines.values())[:CALLERS]) or None


def _input_origin(value: Any, name: str) -> Origin | None:
    return None if _not_finite(value) is None else Origin(f"it came with {name}")


def _not_finite(value: Any) -> np.ndarray | None:
    if not _is_float(value):
        return None
    bad = np.asarray(~np.isfinite(np.asarray(value).astype(np.float32)))
    return bad if bad.any() else None


def _is_float(value: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(value), jnp.floating)


def _is_literal(variable: Any) -> bool:
    return hasattr(variable, "val")
