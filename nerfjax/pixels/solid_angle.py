"""Pixels in proportion to the solid angle that they see, for every lens.

A pixel of an equirectangular panorama sees cos(latitude) times what one at the horizon sees, the border of a wide lens
much less than its centre, and a corner outside a fisheye's disk nothing at all. Draws that are uniform over pixels
spend most rays on poles, borders and corners.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import select_cameras, unproject
from nerfjax.pixels import importance
from nerfjax.pixels.base import PixelContent, PixelSampler, no_observation
from nerfjax.types import CAMERA_MODELS, Array, Cameras, ImageTable, PixelBatch

_SIDE = 32  # cells on a side; weights make up for what a cell averages
_PARTS = 4  # parts on a side of a cell in its quadrature
_MANY = 256  # cameras, above which a cell is one part: time on the host
_FLOOR = 0.05
_ORTHOGRAPHIC = CAMERA_MODELS.index("orthographic")


@struct.dataclass
class SolidAngles:
    """The density in use.

    Attributes:
      cells: of the density.
      cameras: of the images, for the solid angle of a single pixel.
      mean: [] solid angle of a pixel, mean over all pixels, where only those that may be drawn have any; steradian.
      imaged: [] share of all pixels that may be drawn and are imaged by their lens.
    """

    cells: Any
    cameras: Any
    mean: Any
    imaged: Any


def solid_angle(*, unbiased: bool = False) -> PixelSampler:
    """Draws directions uniformly from all that the images see.

    The cell of a draw follows the solid angle of the cell (for an equirectangular image: the inverse CDF in the sine of
    the latitude, in steps of a cell), and the weight is (solid angle of the pixel) / (what the density stands for): the
    expected loss is the mean over directions, exactly, and weights are near 1 but at poles and at the rim of a disk.
    Pixels that the lens does not image have the weight 0, and cells of nothing else are not drawn. The pixels of an
    orthographic image, whose rays are parallel, share one steradian equally.

    Args:
      unbiased: whether weights undo the density, so that the expected loss is the mean over the pixels that are imaged,
        as of uniform draws from them; if not, it is the mean over directions.

    Returns:
      The pixel sampler; weights average to 1 in expectation, but for the quadrature at the rim of a disk.
    """

    def init(images: ImageTable, content: PixelContent | None = None) -> SolidAngles:
        if content is None:
            raise UserError("pixels by solid angle need the cameras", field="config.pixels.name", found="solid_angle")
        angle, imaged = cell_angles(content.cameras)
        valid = importance.resample_cells(importance.content_map(images, content, "valid"), _SIDE, _SIDE)
        eligible = jnp.asarray((imaged > 0) & (valid > 0))
        of_pixel = jnp.asarray(angle) / importance.pixels_of(images)[:, None, None]
        of_pixel = jnp.where(eligible, of_pixel, 0.0)
        mean = importance.cell_mean(images, of_pixel)
        # Where a cell is imaged in part, its mean angle may be tiny: a floor keeps the weights of its pixels small.
        density = jnp.where(eligible, jnp.maximum(of_pixel, _FLOOR * mean), 0.0)
        return SolidAngles(
            cells=importance.cell_table(images, density),
            cameras=jax.tree.map(jnp.asarray, content.cameras),
            mean=mean,
            imaged=importance.cell_mean(images, jnp.where(eligible, jnp.asarray(imaged), 0.0)),
        )

    def select(key: Array, state: SolidAngles, images: ImageTable, *, step, size: int) -> PixelBatch:
        draws = importance.fresh_draws(key, state.cells, images, step=step, size=size)
        angle, imaged = pixel_angles(state.cameras, draws.image, draws.row, draws.column)
        target = 1.0 / state.imaged if unbiased else angle / state.mean
        weight = jnp.where(imaged, draws.ratio * target, 0.0)
        return PixelBatch(image=draws.image, row=draws.row, column=draws.column, weight=weight)

    return PixelSampler(init=init, select=select, observe=no_observation, wants=("valid",))


def cell_angles(cameras: Cameras) -> tuple[np.ndarray, np.ndarray]:
    """Integrates the solid angle over the cells of each image, on the host.

    Args:
      cameras: [C], NumPy leaves.

    Returns:
      [C, h, w] float32 steradian per image area (the mean over an image's cells is what the whole image sees), and
      [C, h, w] float32 share of the cell that the lens images.
    """
    leaves = (cameras.focal, cameras.center, cameras.distortion, cameras.size, np.asarray(cameras.model)[:, None])
    columns = [np.asarray(leaf, np.float64) for leaf in leaves]
    # Most captures have one lens for all images.
    _, first, which = np.unique(np.concatenate(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    parts = _PARTS if len(first) <= _MANY else 1
    tables = [_lens_angles(cameras, int(index), parts) for index in first]
    angle, imaged = (np.stack(leaves)[which.reshape(-1)] for leaves in zip(*tables, strict=True))
    return angle, imaged


def _lens_angles(cameras: Cameras, index: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """``cell_angles`` of one camera, from the quadrangles of a lattice of directions."""
    count = _SIDE * parts
    width, height = np.asarray(cameras.size)[index]
    y, x = np.meshgrid(*(np.linspace(0, side, count + 1) for side in (height, width)), indexing="ij")
    own = jax.tree.map(lambda leaf: np.broadcast_to(leaf[index], (*x.shape, *np.shape(leaf)[1:])), cameras)
    rays = unproject(own, np.stack([x, y], axis=-1), xp=np)
    d = rays.directions
    diagonals = np.cross(d[1:, 1:] - d[:-1, :-1], d[1:, :-1] - d[:-1, 1:])
    area = 0.5 * np.linalg.norm(diagonals, axis=-1) * count**2
    if int(np.asarray(cameras.model)[index]) == _ORTHOGRAPHIC:
        area = np.ones_like(area)
    seen = np.asarray(rays.converged, np.float64)
    seen = 0.25 * (seen[1:, 1:] + seen[:-1, :-1] + seen[1:, :-1] + seen[:-1, 1:])
    cells = (_SIDE, parts, _SIDE, parts)
    area, seen = ((values.reshape(cells).mean(axis=(1, 3))).astype(np.float32) for values in (area * seen, seen))
    return area, seen


def pixel_angles(cameras: Cameras, image: Array, row: Array, column: Array) -> tuple[Array, Array]:
    """Returns [N] solid angles of pixels, |dr/dx x dr/dy| at their centres, and whether the lens images them."""
    own = select_cameras(cameras, image)
    pixels = jnp.stack([column, row], axis=-1).astype(jnp.float32) + 0.5

    def direction(pixels):
        rays = unproject(own, pixels)
        return rays.directions, rays.converged

    unit = jnp.zeros_like(pixels)
    _, along_x, imaged = jax.jvp(direction, (pixels,), (unit.at[:, 0].set(1.0),), has_aux=True)
    _, along_y, _ = jax.jvp(direction, (pixels,), (unit.at[:, 1].set(1.0),), has_aux=True)
    angle = jnp.linalg.norm(jnp.cross(along_x, along_y), axis=-1)
    if "orthographic" in cameras.models:
        width, height = (own.size[:, axis].astype(jnp.float32) for axis in (0, 1))
        angle = jnp.where(own.model == _ORTHOGRAPHIC, 1.0 / (width * height), angle)
    return angle, imaged
