"""mip-NeRF 360's field (Barron et al. 2022, "Mip-NeRF 360"): mip-NeRF's, on an off-axis encoding of contracted space.

Its proposal network is ``density_networks.integrated_density``.
"""

from __future__ import annotations

from nerfjax.fields.base import domain_of
from nerfjax.fields.mipnerf import MipNerfField
from nerfjax.types import SceneGeometry


def mipnerf360(
    geometry: SceneGeometry,
    *,
    depth: int = 8,
    width: int = 1024,
    skip: int = 4,
    position_degrees: int = 12,
    direction_degrees: int = 4,
    bottleneck_width: int = 256,
    color_width: int = 128,
    precision: str = "default",
) -> MipNerfField:
    """Returns mip-NeRF 360's field.

    Args:
      geometry: the scene; space outside the box is contracted if the scene is unbounded (Eq. 10), and Gaussians with
        it by linearisation (Eq. 9).
      depth: layers of the trunk.
      width: width of the trunk.
      skip: the encoded position is fed in again after this layer.
      position_degrees: frequencies along each of the 21 directions.
      direction_degrees: frequencies for directions.
      bottleneck_width: features handed to the colour head.
      color_width: width of the colour head.
      precision: matmul precision.
    """
    return MipNerfField(
        domain_of(geometry), depth, width, skip, position_degrees, direction_degrees, bottleneck_width, color_width,
        True, precision,
    )  # fmt: skip
