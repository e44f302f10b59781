"""Hierarchical sampling: a stratified coarse pass of the field tells where the fine intervals go.

NeRF, section 5.2 (Mildenhall et al. 2020); mip-NeRF, section 3.3 (Barron et al. 2021) for the blurred weights.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from nerfjax import stepfun
from nerfjax.errors import UserError
from nerfjax.samplers import placement
from nerfjax.samplers.base import DensityFn, Sampler, SamplerState, no_loss, no_refresh, stateless
from nerfjax.types import Array, Intervals, Level, Rays, SamplerInfo
from nerfjax.volume import weights_from_density


def hierarchical(
    *,
    num_coarse: int = 64,
    num_fine: int = 128,
    reuse_coarse: bool = True,
    coarse_loss: bool = True,
    blur: bool = False,
    padding: float = 1e-5,
    spacing: str = "linear",
    jitter: str = "stratum",
    randomize: str = "points",
    deterministic: bool = False,
) -> Sampler:
    """Draws fine positions by inverse CDF from the weights of a coarse pass.

    The coarse weights w_i, each with ``padding`` added, are a piecewise constant pdf over the coarse strata; the fine
    positions are s = CDF^-1(u) at u jittered in equal strata. The fine edges are the union of the coarse edges and
    the drawn positions (NeRF), or the drawn positions alone between the ends of the ray (mip-NeRF).

    Args:
      num_coarse: intervals of the coarse pass, evaluated with ``density_fn(..., level=0)``.
      num_fine: intervals drawn.
      reuse_coarse: whether the coarse edges join the fine ones (num_coarse + num_fine fine evaluations).
      coarse_loss: whether the coarse level asks for a colour and so for a colour loss of its own. Without it
        nothing trains a coarse network; a network shared by both passes does not need it.
      blur: whether each weight is widened to its neighbours first (the maximum of neighbours, averaged).
      padding: weight added to each coarse interval, so that none is unreachable.
      spacing, jitter, randomize, deterministic: as in ``stratified``.

    Returns:
      The sampler; it has no state.

    Raises:
      UserError: an option is not valid.
    """
    placement.check_counts(num_coarse=num_coarse, num_fine=num_fine)
    if not padding > 0.0:
        raise UserError("the padding keeps empty rays sampled", field="padding", found=padding, expected="above 0")
    how = placement.placement(spacing=spacing, jitter=jitter, randomize=randomize, deterministic=deterministic)
    num_final = num_fine + (num_coarse if reuse_coarse else 0)

    def fine_edges(key: Array, rays: Rays, coarse: Intervals, weights: Array) -> Array:
        weights = jax.lax.stop_gradient(weights)
        weights = stepfun.blur_weights(weights) if blur else weights
        # n intervals between pinned ends have n - 1 inner edges; in a union with the coarse edges all n are inner.
        count = num_fine if reuse_coarse else num_fine - 1
        if count == 0:
            return coarse.s[..., jnp.array([0, -1])]
        u = stepfun.stratified_uniform(placement.draw_jitter(how, key, rays, count), count)
        u = jnp.broadcast_to(u, (*rays.near.shape, count))
        drawn = stepfun.invert_cdf(u, coarse.s, stepfun.cdf_from_weights(weights, padding=padding))
        if reuse_coarse:
            return stepfun.merge_edges(coarse.s, drawn)
        return jnp.concatenate([coarse.s[..., :1], drawn, coarse.s[..., -1:]], axis=-1)

    def sample(
        key: Array, state: SamplerState, rays: Rays, density_fn: DensityFn, *, step
    ) -> tuple[Intervals, SamplerInfo]:
        del state, step
        key_edges, key_points, key_drawn, key_fine = jax.random.split(key, 4)
        edges = placement.uniform_edges(how, key_edges, rays, num_coarse)
        coarse = placement.intervals_from_edges(how, key_points, rays, edges)
        weights = weights_from_density(density_fn(rays, coarse, level=0), coarse.t_delta)
        fine = placement.intervals_from_edges(how, key_fine, rays, fine_edges(key_drawn, rays, coarse, weights))
        level = Level(intervals=coarse, weights=weights, supervise_color=coarse_loss)
        return fine, placement.dense_info(rays, evaluations=num_coarse + num_final, levels=(level,))

    return Sampler(init=stateless, sample=sample, refresh=no_refresh, loss=no_loss)
