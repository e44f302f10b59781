"""Stratified sampling: equal strata of the normalised ray coordinate (NeRF, Eq. 2; Mildenhall et al. 2020)."""

from __future__ import annotations

import jax

from nerfjax.samplers.base import DensityFn, Sampler, SamplerState, no_loss, no_refresh, stateless
from nerfjax.samplers.placement import check_counts, dense_info, intervals_from_edges, placement, uniform_edges
from nerfjax.types import Array, Intervals, Rays, SamplerInfo


def stratified(
    *,
    num_samples: int = 64,
    spacing: str = "linear",
    jitter: str = "stratum",
    randomize: str = "points",
    deterministic: bool = False,
) -> Sampler:
    """Cuts every ray into equal strata of s, one evaluation in each.

    The strata are [i / n, (i + 1) / n] in s, i = 0 ... n-1. With ``randomize="points"`` they stay and the field is
    evaluated at a uniform point of each, so that the optical depth is unbiased; with "edges" the inner edges move by
    up to half a stratum and the field is evaluated over the intervals between them (mip-NeRF).

    Args:
      num_samples: n, intervals per ray.
      spacing: name of the s-t warp, one of ``geometry.warps.SPACINGS``.
      jitter: "stratum" for independent random numbers, "single" for one per ray.
      randomize: "points" or "edges" (``placement``).
      deterministic: fixed strata, evaluated at midpoints; the key is not used.

    Returns:
      The sampler; it has no state and evaluates the field n times per ray.

    Raises:
      UserError: an option is not valid.
    """
    check_counts(num_samples=num_samples)
    how = placement(spacing=spacing, jitter=jitter, randomize=randomize, deterministic=deterministic)

    def sample(
        key: Array, state: SamplerState, rays: Rays, density_fn: DensityFn, *, step
    ) -> tuple[Intervals, SamplerInfo]:
        del state, density_fn, step
        key_edges, key_points = jax.random.split(key)
        s = uniform_edges(how, key_edges, rays, num_samples)
        return intervals_from_edges(how, key_points, rays, s), dense_info(rays, evaluations=num_samples)

    return Sampler(init=stateless, sample=sample, refresh=no_refresh, loss=no_loss)
