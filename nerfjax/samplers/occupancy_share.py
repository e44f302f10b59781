"""How much of the occupancy grids that a sampler carries is occupied, for the reports."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from nerfjax.samplers.occupancy_grid import OccupancyGrid
from nerfjax.types import Array


def occupancy_share(aux: Any) -> Array | None:
    """Returns the occupied share of the cells of all grids in a sampler's ``aux``, []; None where it has no grid.

    Cells in whose place a finer cascade is asked do not count; those that no training camera sees count as empty.
    """

    def is_grid(node: Any) -> bool:
        return isinstance(node, OccupancyGrid)

    grids = [node for node in jax.tree.leaves(aux, is_leaf=is_grid) if is_grid(node)]
    if not grids:
        return None
    occupied = [jnp.sum(((grid.skip == 0) & (grid.density >= 0.0)).astype(jnp.float32)) for grid in grids]
    return sum(occupied) / sum(_asked_cells(*grid.skip.shape[:2]) for grid in grids)


def _asked_cells(cascades: int, resolution: int) -> float:
    """Cells of all cascades but the middle eighth of those after the first."""
    return resolution**3 * (1.0 + (cascades - 1) * 7.0 / 8.0)
