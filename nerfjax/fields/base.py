"""The contract of every field: density and colour of space.

A field is a Flax linen module, used only through ``init`` and ``apply``, with

- ``point_kind``: "point" (``Points``), "gaussian" or "multisample": what the renderer casts intervals to;
- ``density(points) -> (density [...], features [..., F])``, density in 1 / world unit;
- ``color(features, directions, conditioning) -> [..., 3]`` in [0, 1] (sRGB);
- optionally ``regularize() -> {name: scalar}``: unweighted penalties of its parameters, each weighted by
  ``config.train.NAME_weight`` (``train.penalties``);
- optionally ``resample(params, shapes) -> params``, of a module that is not bound: its parameters at another
  resolution, for a stage of a curriculum that changes the field's.

A member of the family is a factory ``name(geometry, *, options...) -> module``: the scene's box becomes static floats
of the module, so that all inner coordinates are those of the unit cube whatever the capture's scale.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from nerfjax.geometry import warps
from nerfjax.geometry.contraction import contract_gaussians, contraction_scale
from nerfjax.types import Array, Gaussians, Multisamples, SceneGeometry


class Domain(NamedTuple):
    """The part of space that a field covers, as static numbers.

    Attributes:
      lower, upper: corners of the scene's box, world units.
      bounded: whether there is nothing outside the box; otherwise space outside is contracted.
    """

    lower: tuple[float, float, float]
    upper: tuple[float, float, float]
    bounded: bool

    @property
    def scale(self) -> float:
        """Half the longest side of the box, world units: the unit of inner densities."""
        return max(high - low for low, high in zip(self.lower, self.upper, strict=True)) / 2

    def unit_cube(self, positions: Array) -> Array:
        """Maps world positions [..., 3] to [0, 1]^3.

        Bounded: the box fills the cube. Unbounded: the contracted ball of radius 2 does (mip-NeRF 360, Eq. 10), on
        coordinates in which the box is [-1, 1]^3.
        """
        normalized = warps.normalize_to_box(positions, np.asarray([self.lower, self.upper], np.float32))
        if self.bounded:
            return normalized * 0.5 + 0.5
        return warps.contract(normalized) * 0.25 + 0.5

    def gaussians(self, gaussians: Gaussians) -> Gaussians:
        """Maps world Gaussians to coordinates in which the box is [-1, 1]^3, contracted where there is more outside.

        Unlike ``unit_cube``'s, these are of order one and up to 2: the units that integrated encodings are made for.
        """
        box = np.asarray([self.lower, self.upper], np.float32)
        means, scale = warps.normalize_to_box(gaussians.means, box), 2.0 / (box[1] - box[0])
        rank = (1,) * (means.ndim - 1)
        covariances = gaussians.covariances * np.outer(scale, scale).reshape((*rank, 3, 3))
        normalized = Gaussians(means=means, covariances=covariances)
        return normalized if self.bounded else contract_gaussians(normalized)

    def multisamples(self, samples: Multisamples) -> Multisamples:
        """Maps world multisamples to the unit cube, as ``unit_cube`` does their positions.

        A deviation shrinks by the geometric mean over directions of what a length shrinks by, |det J|^(1/3), for it
        stays isotropic (Zip-NeRF, section 2).
        """
        box = np.asarray([self.lower, self.upper], np.float32)
        positions = self.unit_cube(samples.positions)
        scale = float(np.prod(2.0 / (box[1] - box[0])) ** (1.0 / 3.0))
        if self.bounded:
            return Multisamples(positions=positions, deviations=samples.deviations * (0.5 * scale))
        contracted = contraction_scale(warps.normalize_to_box(samples.positions, box))
        return Multisamples(positions=positions, deviations=samples.deviations * (0.25 * scale) * contracted)

    def inside(self, positions: Array) -> Array:
        """Says where there can be anything, bool [...]."""
        if not self.bounded:
            return jnp.ones(positions.shape[:-1], bool)
        corners = (jnp.asarray(corner, positions.dtype) for corner in (self.lower, self.upper))
        lower, upper = (corner.reshape((1,) * (positions.ndim - 1) + (3,)) for corner in corners)
        return jnp.all((positions >= lower) & (positions <= upper), axis=-1)


def domain_of(geometry: SceneGeometry) -> Domain:
    """Returns the static domain of a scene."""
    lower, upper = np.asarray(geometry.box, np.float64)
    return Domain(tuple(map(float, lower)), tuple(map(float, upper)), geometry.bounded)
