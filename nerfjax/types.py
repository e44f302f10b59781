"""The arrays that travel through the house, as frozen pytrees.

Notation, everywhere: ``t`` is distance along a unit ray in world units, ``s`` in [0, 1] the normalised
ray coordinate (see ``geometry/warps.py``). Pixels have their centres at +0.5. Poses are camera-to-world,
OpenGL axes (+x right, +y up, -z forward), world +z up. ``...`` stands for any batch shape, N for rays,
S for intervals of a ray, C for cameras (= images), M for packed intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

Array = jax.Array
GEOMETRY_POINTS = 20_000

# In the order of their numbers in ``Cameras.model``: add at the end only.
CAMERA_MODELS = (
    "pinhole", "opencv", "opencv_fisheye", "equirectangular", "orthographic", "full_opencv", "fov",
    "thin_prism_fisheye", "rad_tan_thin_prism_fisheye", "division", "eucm",
)  # fmt: skip
# The columns of ``Cameras.distortion``; which of them a model uses, and for what, is in ``geometry/cameras.py``.
DISTORTION = ("k1", "k2", "k3", "k4", "p1", "p2", "k5", "k6", "s1", "s2", "s3", "s4")


@struct.dataclass
class Cameras:
    """Cameras of C images.

    Attributes:
      pose: [C, 3, 4] camera-to-world.
      focal: [C, 2] (fx, fy), pixels; pixels per world unit for ``orthographic``; unused for ``equirectangular``.
      center: [C, 2] principal point (cx, cy), pixels; the centre of the top-left pixel is (0.5, 0.5).
      distortion: [C, 12] in the order of ``DISTORTION``; zeros where the model has none.
      size: [C, 2] int32 (width, height), pixels.
      model: [C] int32, index into ``CAMERA_MODELS``.
      models: static; the names that occur in ``model`` (only those are compiled).
    """

    pose: Array
    focal: Array
    center: Array
    distortion: Array
    size: Array
    model: Array
    models: tuple[str, ...] = struct.field(pytree_node=False, default=("pinhole",))

    def __len__(self) -> int:
        return self.pose.shape[0]

    def __getitem__(self, index) -> Cameras:
        """Selects cameras; ``models`` stays as it is, so that no recompilation follows."""
        return jax.tree.map(lambda leaf: leaf[index], self)


@struct.dataclass
class ImageTable:
    """Sizes of C images and where each begins in the sequence of all pixels.

    A flat pixel position may exceed 2^32, so starts are digit pairs ``high * radix + low``
    (radix: ``numerics.permutation_radix(total)``).

    Attributes:
      width, height: [C] int32, pixels.
      start_high, start_low: [C] uint32 digits of the position of the image's first pixel.
      total: static; number of pixels of all images.
    """

    width: Array
    height: Array
    start_high: Array
    start_low: Array
    total: int = struct.field(pytree_node=False)


@struct.dataclass
class PixelBatch:
    """Pixels of one global batch: [N] int32 ``image``, ``row``, ``column``; [N] ``weight`` of the pixel's loss."""

    image: Array
    row: Array
    column: Array
    weight: Array


@struct.dataclass
class Rays:
    """Rays of any batch shape.

    Attributes:
      origins: [..., 3] world units.
      directions: [..., 3] of unit length.
      near, far: [...] distances between which the ray is integrated.
      footprint: [...] radius of the pixel's cone at t = 1 (for ``orthographic``: the constant radius).
      camera_index: [...] int32 index of the training image; -1 when there is none.
      index: [...] int32 position in the GLOBAL batch; the ray's randomness depends on nothing else.
      depth_prior: [...] measured distance along the ray, world units, 0 where unknown; None where nothing is measured.
    """

    origins: Array
    directions: Array
    near: Array
    far: Array
    footprint: Array
    camera_index: Array
    index: Array
    depth_prior: Any = None


@struct.dataclass
class Intervals:
    """S intervals per ray, dense.

    Attributes:
      t, s: [..., S+1] sorted edges, world units and normalised.
      t_point: [..., S] where in each interval a point field is evaluated, or None for the midpoints. A point drawn
        uniformly from its interval makes the quadrature of the optical depth unbiased whatever the edges are.
    """

    t: Array
    s: Array
    t_point: Array | None = None

    @property
    def count(self) -> int:
        """Number of intervals, S."""
        return self.t.shape[-1] - 1

    @property
    def t_mid(self) -> Array:
        """[..., S] midpoints."""
        return 0.5 * (self.t[..., :-1] + self.t[..., 1:])

    @property
    def t_eval(self) -> Array:
        """[..., S] where a point field is evaluated."""
        return self.t_mid if self.t_point is None else self.t_point

    @property
    def t_delta(self) -> Array:
        """[..., S] lengths."""
        return self.t[..., 1:] - self.t[..., :-1]


@struct.dataclass
class PackedIntervals:
    """A ragged number of intervals per ray in M static slots, ray-major (slots of a ray are adjacent, t ascending).

    Attributes:
      t0, t1: [M] ends of the interval, world units; zero in padding.
      ray: [M] int32 ray of the slot; ``num_rays`` in padding.
      start, count: [N] int32 first slot and number of slots of each ray.
      overflow: [] int32 number of intervals that did not fit and were left out.
      t_point: [M] where in each interval a point field is evaluated, or None for the midpoints (as in ``Intervals``).
    """

    t0: Array
    t1: Array
    ray: Array
    start: Array
    count: Array
    overflow: Array
    t_point: Any = None

    @property
    def t_mid(self) -> Array:
        """[M] midpoints."""
        return 0.5 * (self.t0 + self.t1)

    @property
    def t_eval(self) -> Array:
        """[M] where a point field is evaluated."""
        return self.t_mid if self.t_point is None else self.t_point

    @property
    def t_delta(self) -> Array:
        """[M] lengths."""
        return self.t1 - self.t0


@struct.dataclass
class Points:
    """Where a point field is evaluated: ``positions`` [..., 3] and the pixel's ``radius`` [...] there, world units."""

    positions: Array
    radius: Array


@struct.dataclass
class Gaussians:
    """Where a field of Gaussians is evaluated: ``means`` [..., 3] and ``covariances`` [..., 3, 3], world units."""

    means: Array
    covariances: Array


@struct.dataclass
class Multisamples:
    """Where a field of multisamples is evaluated.

    Attributes:
      positions: [..., K, 3] world units.
      deviations: [..., K] standard deviation of each isotropic sample, world units.
    """

    positions: Array
    deviations: Array


CastPoints = Points | Gaussians | Multisamples


@struct.dataclass
class Conditioning:
    """What colour may depend on besides place and direction.

    Attributes:
      camera_index: [...] int32 training image, or -1 for the mean embedding (test views).
      exposure: [...] log exposure relative to the capture's mean; 0 where unknown.
    """

    camera_index: Array
    exposure: Array


@struct.dataclass
class SceneGeometry:
    """All that a sampler or a field may know of a scene.

    Attributes:
      box: [2, 3] lower and upper corner, world units. Bounded scene: it holds everything. Unbounded scene: the
        region of full resolution; space outside is contracted (``geometry/warps.py``).
      near, far: [] distances for rays that meet no box, world units.
      cameras: the training cameras.
      spacing: static; name of the s-t warp that suits the scene ("linear" for bounded ones).
      bounded: static; whether ``box`` holds everything.
      points: [P, 3] sparse points of the capture, world units, at most ``GEOMETRY_POINTS``; None where it has none.
    """

    box: Array
    near: Array
    far: Array
    cameras: Cameras
    spacing: str = struct.field(pytree_node=False, default="linear")
    bounded: bool = struct.field(pytree_node=False, default=True)
    points: Any = None


@struct.dataclass
class Level:
    """One sampling level: intervals, their weights [..., S] (or [M]) and whether colour is supervised there."""

    intervals: Any
    weights: Array
    supervise_color: bool = struct.field(pytree_node=False, default=False)


@struct.dataclass
class SamplerInfo:
    """What a sampler reports of one call.

    Attributes:
      levels: the levels before the final one, coarse to fine; proposal levels keep their gradient.
      evaluations: [] float, evaluations of the MAIN field per ray, final intervals included.
      proposal_evaluations: [] float, evaluations of proposal networks or grids per ray.
      overflow: [] int32 intervals left out for want of room.
      t_end: [N] distance up to which the ray is covered (``rays.far`` when complete).
    """

    levels: tuple[Level, ...]
    evaluations: Array
    proposal_evaluations: Array
    overflow: Array
    t_end: Array


@struct.dataclass
class Rendering:
    """Composited rays with the final level that they came from.

    Attributes:
      color: [..., 3] in [0, 1] (sRGB), background included.
      accumulation: [...] opacity, the sum of the weights.
      depth: [...] expected distance, sum of weight * t_mid, with the rest of the weight at ``far``.
      intervals: the final ``Intervals`` or ``PackedIntervals``.
      weights: [..., S] or [M] weights of ``intervals``.
    """

    color: Array
    accumulation: Array
    depth: Array
    intervals: Any
    weights: Array


class DensityNetwork(NamedTuple):
    """A density-only network that a proposal sampler owns.

    Attributes:
      init: ``(key, geometry) -> params``.
      apply: ``(params, points) -> density [...]``.
      point_kind: what intervals are cast to for it (``geometry.casting``).
      regularize: ``(params) -> {name: scalar}``, unweighted penalties of the parameters; None where there are none.
    """

    init: Callable[..., Any]
    apply: Callable[..., Array]
    point_kind: str = "point"
    regularize: Callable[..., dict[str, Array]] | None = None


def zeros_int() -> Array:
    """A scalar int32 zero (counts such as ``overflow``)."""
    return jnp.zeros((), jnp.int32)
