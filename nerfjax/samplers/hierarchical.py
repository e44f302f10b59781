"""Hierarchical sampling: a stratified coarse pass of the field tells where the fine intervals go.

NeRF, section 5.2 (Mildenhall et al. 2020); mip-NeRF, section 3.3 (Barron et al. 2021) for the blurred weights;
mip-NeRF 360, supplement (Barron et al. 2022) for dilation and annealing.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from nerfjax import stepfun
from nerfjax.errors import UserError
from nerfjax.samplers import placement
from nerfjax.samplers.base import DensityFn, Sampler, SamplerState, no_loss, no_refresh, stateless
from nerfjax.samplers.shaping import Shaping, check_shaping, shaped
from nerfjax.types import Array, Intervals, Level, Rays, SamplerInfo
from nerfjax.volume import weights_from_density


def hierarchical(
    *,
    num_coarse: int = 64,
    num_fine: int = 128,
    reuse_coarse: bool = True,
    coarse_loss: bool = True,
    blur: bool = False,
    dilation_bias: float = 0.0,
    dilation_multiplier: float = 0.0,
    anneal_steps: int = 0,
    anneal_slope: float = 10.0,
    padding: float = 1e-5,
    spacing: str = "linear",
    jitter: str = "stratum",
    randomize: str = "points",
    deterministic: bool = False,
) -> Sampler:
    """Draws fine positions by inverse CDF from the weights of a coarse pass.

    The defaults are NeRF's. mip-NeRF's are ``num_coarse=128, num_fine=128, reuse_coarse=False, blur=True,
    padding=0.01, jitter="single", randomize="edges"`` with one field for both passes and a factor of 0.1 on the
    coarse colour loss; dilation and annealing are mip-NeRF 360's (``dilation_bias=0.0025, dilation_multiplier=0.5``,
    annealed over the whole run), here for the weights of the field itself.

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
      dilation_bias, dilation_multiplier: weights are max-dilated by bias + multiplier / num_coarse in s; both 0 for
        no dilation.
      anneal_steps, anneal_slope: the weights are raised to b f / ((b - 1) f + 1), f = step / anneal_steps,
        b = anneal_slope, so that fine positions are drawn evenly at first; 0 steps for no annealing.
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
    shaping = check_shaping(Shaping(blur, dilation_bias, dilation_multiplier, anneal_steps, anneal_slope, padding))
    num_final = num_fine + (num_coarse if reuse_coarse else 0)

    def fine_edges(key: Array, rays: Rays, coarse: Intervals, weights: Array, step) -> Array:
        s, weights = shaped(shaping, coarse.s, weights, intervals=num_coarse, step=step)
        # n intervals between pinned ends have n - 1 inner edges; in a union with the coarse edges all n are inner.
        count = num_fine if reuse_coarse else num_fine - 1
        if count == 0:
            return coarse.s[..., jnp.array([0, -1])]
        u = stepfun.stratified_uniform(placement.draw_jitter(how, key, rays, count), count)
        u = jnp.broadcast_to(u, (*rays.near.shape, count))
        drawn = stepfun.invert_cdf(u, s, stepfun.cdf_from_weights(weights))
        if reuse_coarse:
            return stepfun.merge_edges(coarse.s, drawn)
        return jnp.concatenate([coarse.s[..., :1], drawn, coarse.s[..., -1:]], axis=-1)

    def sample(
        key: Array, state: SamplerState, rays: Rays, density_fn: DensityFn, *, step
    ) -> tuple[Intervals, SamplerInfo]:
        del state
        key_edges, key_points, key_drawn, key_fine = jax.random.split(key, 4)
        edges = placement.uniform_edges(how, key_edges, rays, num_coarse)
        coarse = placement.intervals_from_edges(how, key_points, rays, edges)
        weights = weights_from_density(density_fn(rays, coarse, level=0), coarse.t_delta)
        fine = placement.intervals_from_edges(how, key_fine, rays, fine_edges(key_drawn, rays, coarse, weights, step))
        level = Level(intervals=coarse, weights=weights, supervise_color=coarse_loss)
        return fine, placement.dense_info(rays, evaluations=num_coarse + num_final, levels=(level,))

    return Sampler(init=stateless, sample=sample, refresh=no_refresh, loss=no_loss)
