"""Colours made of sinusoids, and a builder that collects primitives.

A ``Look`` is base + Σ amplitude sin(wave · x + phase) with values in [0, 1] (sRGB). Frequencies are in cycles per
world unit, along world axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nerfjax.scenes.primitives import BALL, CUBE, CYLINDER, OUTSIDE, Primitives

LIGHT = np.array([0.35, -0.45, 0.82]) / np.linalg.norm([0.35, -0.45, 0.82])
_QUARTER = 0.5 * np.pi


class Wave(NamedTuple):
    """One sinusoid: ``wave`` [3] radians per unit, ``phase`` radians, ``amplitude`` [3]."""

    wave: np.ndarray
    phase: float
    amplitude: np.ndarray


class Look(NamedTuple):
    """A colour pattern."""

    base: np.ndarray
    waves: tuple[Wave, ...] = ()


def plain(color: Sequence) -> Look:
    """One colour."""
    return Look(np.asarray(color, np.float64))


def stripes(one: Sequence, other: Sequence, frequency: Sequence, phase: float | int = 0.0) -> Look:
    """Stripes between two colours along the vector ``frequency`` (cycles per unit)."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return Look((one + other) / 2, (Wave(2 * np.pi * np.asarray(frequency, np.float64), phase, (one - other) / 2),))


def checker(one: Sequence, other: Sequence, frequency: float | int, axes: str = "xy", turn: float | int = 0.0) -> Look:
    """A soft chequerboard sin x sin y (or sin x sin y sin z), written as a sum of sinusoids; ``turn`` about z."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    rotation = rotation_about("z", turn)
    unit = {axis: 2 * np.pi * frequency * rotation[:, i] for i, axis in enumerate("xyz")}
    x, y = unit[axes[0]], unit[axes[1]]
    half = (one - other) / 2
    if len(axes) == 2:
        waves = (Wave(x - y, _QUARTER, half / 2), Wave(x + y, -_QUARTER, half / 2))
    else:
        z = unit[axes[2]]
        waves = tuple(
            Wave(w, 0.0, sign * half / 4)
            for w, sign in ((x + y - z, 1), (x - y + z, 1), (y + z - x, 1), (x + y + z, -1))
        )
    return Look((one + other) / 2, waves)


def with_waves(look: Look, *others: Look) -> Look:
    """Adds the sinusoids of other looks."""
    return Look(look.base, look.waves + tuple(wave for other in others for wave in other.waves))


def lit(look: Look, center: Sequence, radius: float | int, amount: float | int = 0.2) -> Look:
    """Brightens the side of an object that faces the light: half a sinusoid across its width."""
    wave = LIGHT * _QUARTER / radius
    keep = 1.0 - amount
    waves = tuple(w._replace(amplitude=keep * w.amplitude) for w in look.waves)
    shade = Wave(wave, -float(wave @ np.asarray(center)), np.full(3, amount) * np.clip(2 * look.base, 0.6, 1.0))
    return Look(keep * look.base + amount / 4, (*waves, shade))


def rotation_about(axis: str, degrees: float | int) -> np.ndarray:
    """Returns the rotation [3, 3] about a coordinate axis."""
    i = "xyz".index(axis)
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    matrix = np.eye(3)
    j, k = (i + 1) % 3, (i + 2) % 3
    matrix[j, j], matrix[j, k], matrix[k, j], matrix[k, k] = c, -s, s, c
    return matrix


class Builder:
    """Collects primitives; ``build`` stacks them and keeps every colour inside [0, 1]."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, np.ndarray, np.ndarray, float, Look]] = []

    def _add(self, kind: int, axes: np.ndarray, center, density: float | int, look: Look) -> None:
        """``axes``: [3, 3], columns are the half axes of the shape; zero rows of the inverse make slabs."""
        matrix = np.linalg.inv(axes)
        self._rows.append((kind, matrix, -matrix @ np.asarray(center, np.float64), density, look))

    def ball(
        self, center, radius, density: float | int, look: Look, *, rotation=None, shade: float | int = 0.2
    ) -> None:
        """Adds a ball, or an ellipsoid with three radii."""
        self._solid(BALL, center, np.broadcast_to(radius, 3), density, look, rotation, shade)

    def box(self, center, half, density: float | int, look: Look, *, rotation=None, shade: float | int = 0.15) -> None:
        """Adds a box with half sides ``half``."""
        self._solid(CUBE, center, np.broadcast_to(half, 3), density, look, rotation, shade)

    def disc(
        self,
        center,
        radius: float | int,
        half: float | int,
        density: float | int,
        look: Look,
        *,
        shade: float | int = 0.1,
    ) -> None:
        """Adds an upright cylinder."""
        self._solid(CYLINDER, center, np.array([radius, radius, half]), density, look, None, shade)

    def _solid(self, kind, center, half, density, look, rotation, shade) -> None:
        rotation = np.eye(3) if rotation is None else rotation
        look = lit(look, center, float(np.linalg.norm(rotation.T @ LIGHT * half)), shade) if shade else look
        self._add(kind, rotation * np.asarray(half, np.float64), center, density, look)

    def rod(self, start, end, radius: float | int, density: float | int, look: Look) -> None:
        """Adds a thin cylinder between two points."""
        start, end = np.asarray(start, np.float64), np.asarray(end, np.float64)
        along = (end - start) / 2
        side = np.cross(along, np.eye(3)[np.argmin(np.abs(along))])
        side /= np.linalg.norm(side)
        other = np.cross(along, side) / np.linalg.norm(along)
        self._add(CYLINDER, np.stack([radius * side, radius * other, along], axis=1), (start + end) / 2, density, look)

    def slab(self, normal, low: float | int, high: float | int, density: float | int, look: Look) -> None:
        """Adds the infinite slab low < normal · x < high."""
        matrix = np.zeros((3, 3))
        matrix[0] = 2 * np.asarray(normal, np.float64) / (high - low)
        self._rows.append((CUBE, matrix, np.array([-(high + low) / (high - low), 0.0, 0.0]), density, look))

    def sky(self, radius: float | int, density: float | int, look: Look) -> None:
        """Fills the space outside of a ball around the origin."""
        self._add(OUTSIDE, radius * np.eye(3), np.zeros(3), density, look)

    def build(self) -> Primitives:
        """Stacks what was added."""
        count, most = len(self._rows), max(1, max(len(row[4].waves) for row in self._rows))
        amplitude, wave, phase = np.zeros((count, most, 3)), np.zeros((count, most, 3)), np.zeros((count, most))
        base = np.clip([row[4].base for row in self._rows], 0.0, 1.0)
        for p, (*_, look) in enumerate(self._rows):
            for k, one in enumerate(look.waves):
                amplitude[p, k], wave[p, k], phase[p, k] = one.amplitude, one.wave, one.phase
        room = np.minimum(base, 1.0 - base) / np.maximum(np.abs(amplitude).sum(1), 1e-12)
        return Primitives(
            kind=np.array([row[0] for row in self._rows]),
            matrix=np.stack([row[1] for row in self._rows]),
            offset=np.stack([row[2] for row in self._rows]),
            density=np.array([row[3] for row in self._rows], np.float64),
            base=base,
            amplitude=amplitude * np.minimum(room, 1.0)[:, None],
            wave=wave,
            phase=phase,
        )
