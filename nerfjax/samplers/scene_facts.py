"""What a capture tells about how its rays should be sampled, as a handful of numbers.

Everything is measured at *sightings*: a point where there is content, seen by a camera. Notation: t is the point's
distance from that camera, a the angle between neighbouring pixels there, so that p = a t is a pixel's width on the
content, world units. The points are the capture's sparse points, or the silhouettes' hull of an object, or, where
nothing tells, a plane through what the cameras look at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from nerfjax.geometry.cameras import inside_image, project, unproject
from nerfjax.geometry.poses import focus_point
from nerfjax.geometry.warps import s_from_t
from nerfjax.types import Cameras, SceneGeometry

CAMERAS, POINTS = 24, 500  # looked at
NEAREST, FARTHEST = 0.05, 0.95  # of the sightings: strays are passed over
UNBOUNDED_SPACINGS = ("piecewise", "disparity", "power", "log")


class SceneFacts(NamedTuple):
    """Measurements of one capture, scene units.

    Attributes:
      bounded: whether the box holds everything; otherwise space outside of it is contracted.
      facing: how cameras stand: "object" (around a bounded scene), "inward", "outward" or "forward".
      spacing: the s-t warp that the scene asks for.
      near, far: distances between which rays are integrated.
      half: half the longest side of the box.
      content: what tells where there is content: "points", "silhouettes", "box" or "cameras" (an assumption).
      depth: (nearest twentieth, median, farthest twentieth) of the sightings' distances.
      reach: farthest content (but for a hundredth) from the box's middle, in half sides of the box.
      pixel: width of a pixel at the nearest twentieth of the sightings.
      cell: the smallest width (but for a twentieth) of a pixel on the content, in sides of the field's unit cube.
      intervals: {spacing: equal intervals in s that a ray would need for each to be as long as a pixel is wide at the
        median sighting}.
      share: share of a ray, between near and far in s, in which there is content: that of the box that the silhouettes
        leave, or the span of nine tenths of the points; 1 where nothing tells.
      views: mean number of training images in which a point of the content lies, whatever stands before it.
      images: number of training images.
      pixels: of all training images.
      content_pixels: those of them that show content.
    """

    bounded: bool
    facing: str
    spacing: str
    near: float
    far: float
    half: float
    content: str
    depth: tuple[float, float, float]
    reach: float
    pixel: float
    cell: float
    intervals: dict[str, float]
    share: float
    views: float
    images: int
    pixels: int
    content_pixels: int


class Sightings(NamedTuple):
    """K sightings, float64: ``points`` [K, 3], ``origins`` [K, 3] of the rays, ``distance`` and ``pixel`` width [K]."""

    points: np.ndarray
    origins: np.ndarray
    distance: np.ndarray
    pixel: np.ndarray


def measure(
    geometry: SceneGeometry,
    *,
    points: np.ndarray | None = None,
    hull: np.ndarray | None = None,
    hull_share: float = 1.0,
    silhouette: float = 1.0,
) -> SceneFacts:
    """Measures a capture.

    Args:
      geometry: of the scene, NumPy leaves.
      points: [P, 3] sparse points, scene coordinates; None where the capture has none.
      hull: [Q, 3] points that all silhouettes of an object leave; None where there are no silhouettes.
      hull_share: share of the box that they leave.
      silhouette: share of the pixels that show the object.
    """
    cameras, box = geometry.cameras, np.asarray(geometry.box, np.float64)
    facing, focus = _facing(cameras, geometry.bounded)
    sightings, content = None, "cameras"
    for name, known in (("points", points), ("silhouettes", hull), ("box", _in_box(box) if geometry.bounded else None)):
        if sightings is None and known is not None and len(known):
            sightings, content = sight(cameras, np.asarray(known, np.float64)), name
    if sightings is None:
        sightings, content = _assumed(cameras, focus, float(geometry.near)), "cameras"
    half = float((box[1] - box[0]).max() / 2)
    near, far = float(geometry.near), float(geometry.far)
    distance = sightings.distance
    depth = tuple(float(np.quantile(distance, q)) for q in (NEAREST, 0.5, FARTHEST))
    close = distance <= depth[0]
    offset = np.abs(sightings.points - box.mean(axis=0)).max(axis=-1) / half
    pixels = int(np.sum(np.prod(np.asarray(cameras.size, np.int64), axis=-1)))
    return SceneFacts(
        bounded=bool(geometry.bounded),
        facing=facing,
        spacing=geometry.spacing,
        near=near,
        far=far,
        half=half,
        content=content,
        depth=depth,
        reach=float(np.quantile(offset, 0.99)),
        pixel=float(np.median(sightings.pixel[close])),
        cell=float(np.quantile(_in_cube(sightings, box, geometry.bounded), NEAREST)),
        intervals=_intervals(sightings, box, geometry, near, far),
        share=_share(content, hull_share, depth, geometry, near, far),
        views=_views(cameras, sightings.points),
        images=len(cameras),
        pixels=pixels,
        content_pixels=max(round(pixels * silhouette), 1),
    )


def sight(cameras: Cameras, points: np.ndarray) -> Sightings | None:
    """Returns where an even choice of cameras sees an even choice of points, or None where none sees any."""
    rows, picked = even(len(cameras), CAMERAS), points[even(len(points), POINTS)]
    own = cameras[np.repeat(rows, len(picked))]
    image = project(own, np.tile(picked, (len(rows), 1)), xp=np)
    seen = image.valid & inside_image(own, image.pixels, xp=np) & (image.distance > 0)
    if not seen.any():
        return None
    return _at(own[seen], image.pixels[seen], image.distance[seen])


def even(count: int, most: int) -> np.ndarray:
    """Returns at most ``most`` indices below ``count``, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def _at(cameras: Cameras, pixels: np.ndarray, distance: np.ndarray) -> Sightings:
    """Sightings at given distances along the rays of pixels [K, 2], one camera each."""
    rotation, position = np.asarray(cameras.pose[:, :, :3], np.float64), np.asarray(cameras.pose[:, :, 3], np.float64)
    steps = np.array([[0.0, 0.0], [0.5, 0.0], [-0.5, 0.0], [0.0, 0.5], [0.0, -0.5]])
    rays = [unproject(cameras, pixels + step, xp=np) for step in steps]
    ends = [ray.offsets + distance[:, None] * ray.directions for ray in rays]  # camera axes
    width = 0.5 * sum(np.linalg.norm(ends[i] - ends[i + 1], axis=-1) for i in (1, 3))
    origins = position + np.einsum("kij,kj->ki", rotation, rays[0].offsets)
    points = position + np.einsum("kij,kj->ki", rotation, ends[0])
    return Sightings(points, origins, distance, np.maximum(width, 1e-12))


def _assumed(cameras: Cameras, focus: np.ndarray | None, near: float) -> Sightings:
    """Sightings of a plane across each view, at the distance of what the cameras look at, or one unit away."""
    own = cameras[np.repeat(even(len(cameras), CAMERAS), 9)]
    grid = np.stack(np.meshgrid([0.25, 0.5, 0.75], [0.25, 0.5, 0.75]), axis=-1).reshape(9, 2)
    pixels = np.tile(grid, (len(own) // 9, 1)) * np.asarray(own.size, np.float64)
    forward = -np.asarray(own.pose[:, :, 2], np.float64)
    if focus is None:
        distance = np.full(len(own), max(1.0, 1.25 * near))
    else:
        along = np.einsum("ki,ki->k", focus - own.pose[:, :, 3], forward)
        distance = np.maximum(along, near + 0.1 * np.median(np.abs(along)))
    return _at(own, pixels, distance)


def _in_box(box: np.ndarray) -> np.ndarray:
    """Points on a grid inside the ball that three quarters of the box hold."""
    axis = np.linspace(-1.0, 1.0, 9)
    unit = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    unit = unit[np.linalg.norm(unit, axis=-1) <= 1.0]
    return box.mean(axis=0) + 0.75 * unit * (box[1] - box[0]) / 2


def _facing(cameras: Cameras, bounded: bool) -> tuple[str, np.ndarray | None]:
    """How cameras stand, and the point that they look at, where there is one."""
    poses = np.asarray(cameras.pose, np.float64)
    if bounded or len(poses) < 2:
        return "object" if bounded else "outward", None
    forward = -poses[:, :, 2]
    if np.linalg.norm(forward.mean(axis=0)) > 0.95:
        return "forward", None
    focus = focus_point(poses)
    offset = focus - poses[:, :, 3]
    along = np.einsum("ci,ci->c", offset, forward)
    miss = np.median(np.linalg.norm(offset - along[:, None] * forward, axis=-1))
    inward = np.mean(along > 0) > 0.5 and miss < 0.5 * np.median(np.linalg.norm(offset, axis=-1))
    return ("inward", focus) if inward else ("outward", None)


def _in_cube(sightings: Sightings, box: np.ndarray, bounded: bool) -> np.ndarray:
    """Widths of pixels on the content in sides of the field's cube (``fields.base.Domain``).

    The contraction (2 - 1/r) x/r shrinks lengths across the radius by (2 - 1/r) / r, the larger of its two factors.
    """
    sides = box[1] - box[0]
    if bounded:
        return sightings.pixel / sides.max()
    radius = np.linalg.norm((sightings.points - box.mean(axis=0)) / (sides / 2), axis=-1)
    radius = np.maximum(radius, 1.0)
    return sightings.pixel / (2.0 * sides.max()) * (2.0 - 1.0 / radius) / radius


def _intervals(sightings: Sightings, box: np.ndarray, geometry: SceneGeometry, near: float, far: float) -> dict:
    """Median over sightings of (dt/ds) / p for each spacing that may serve."""
    t, pixel = sightings.distance, sightings.pixel
    if geometry.bounded:
        return {"linear": float(np.median(_chords(sightings, box, near, far) / pixel))}
    t = np.clip(t, near * 1.02, far * 0.98)  # content before near is cut off
    found = {}
    for name in dict.fromkeys((geometry.spacing, *UNBOUNDED_SPACINGS)):
        around = jnp.asarray(np.stack([0.99 * t, 1.01 * t]), jnp.float32)
        ends = np.asarray(s_from_t(name, around, near, far), np.float64)
        found[name] = float(np.median(0.02 * t / np.maximum(ends[1] - ends[0], 1e-7) / pixel))
    return found


def _chords(sightings: Sightings, box: np.ndarray, near: float, far: float) -> np.ndarray:
    """Lengths that the rays of the sightings have inside the box, between near and far."""
    direction = (sightings.points - sightings.origins) / sightings.distance[:, None]
    direction = np.where(np.abs(direction) < 1e-12, 1e-12, direction)
    ends = (box[:, None] - sightings.origins) / direction
    entry = np.maximum(ends.min(axis=0).max(axis=-1), near)
    leave = np.minimum(ends.max(axis=0).min(axis=-1), far)
    return np.maximum(leave - entry, 1e-3 * (box[1] - box[0]).max())


def _views(cameras: Cameras, points: np.ndarray) -> float:
    """Mean number of cameras that have a point in their image; each of the points is in one at least."""
    points = points[even(len(points), 50)]
    own = cameras[np.repeat(np.arange(len(cameras)), len(points))]
    image = project(own, np.tile(points, (len(cameras), 1)), xp=np)
    seen = image.valid & inside_image(own, image.pixels, xp=np)
    return max(float(seen.sum() / len(points)), 1.0)


def _share(content: str, hull_share: float, depth: tuple, geometry: SceneGeometry, near: float, far: float) -> float:
    if content == "silhouettes":
        return hull_share
    if content != "points" or geometry.bounded:
        return 1.0
    ends: Any = s_from_t(geometry.spacing, jnp.asarray([depth[0], depth[2]], jnp.float32), near, far)
    return float(np.clip(ends[1] - ends[0], 0.0, 1.0))
