"""Batches that the host streams to the device: for each step of a dispatch, pixels with their colours.

A record is compact (image, offset and 8-bit colour: 11 bytes for RGB); rows, columns and rays are made on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import PartitionSpec

from nerfjax.data.targets import Drawn, Targets
from nerfjax.types import PixelBatch


@struct.dataclass
class PixelRecords:
    """Pixels of one step, [N], or of the K steps of a dispatch, [K, N].

    Attributes:
      image: [...] int32.
      offset: [...] int32, row * width + column.
      color: [..., C] uint8 or uint16, encoded (sRGB) values, C = 3 or 4 (straight alpha).
      valid: [...] bool, or None where all are.
      depth: [...] float32 scene units, 0 where unknown; or None.
    """

    image: Any
    offset: Any
    color: Any
    valid: Any = None
    depth: Any = None


@struct.dataclass
class StreamedBatches:
    """The pixels of a dispatch, spread over the devices, and what they share.

    Attributes:
      records: [K, N] pixels; N is the global batch, of which a device holds its slice.
      table: sizes of the images.
      cameras: cameras of the images, scene coordinates.
      depth_is_z: [I] bool, whether an image's depth is along the optical axis; None where there is no depth.
    """

    records: Any  # a ``PixelRecords``, or where it lies on a mesh (``partition``), as are the others
    table: Any
    cameras: Any
    depth_is_z: Any = None

    def draw(self, records: PixelRecords, select: Callable, *, axis: str) -> Drawn:
        """Unpacks this device's slice of one step; see ``data.targets``."""
        del select
        width = self.table.width[records.image]
        count = records.image.shape[0]
        pixels = PixelBatch(
            image=records.image,
            row=records.offset // width,
            column=records.offset % width,
            weight=jnp.ones((count,), jnp.float32),
        )
        scale = jnp.float32(1.0 / jnp.iinfo(records.color.dtype).max)
        depth_is_z = None if self.depth_is_z is None else self.depth_is_z[records.image]
        mine = Targets(
            pixels=pixels,
            color=records.color.astype(jnp.float32) * scale,
            valid=records.valid,
            depth=records.depth,
            depth_is_z=depth_is_z,
        )
        return Drawn(None, mine, jax.lax.axis_index(axis) * count)


def partition(axis: str) -> StreamedBatches:
    """Returns how ``StreamedBatches`` lie on a mesh: the batch is spread, the rest is everywhere."""
    everywhere = PartitionSpec()
    return StreamedBatches(
        records=PartitionSpec(None, axis), table=everywhere, cameras=everywhere, depth_is_z=everywhere
    )
