"""NeuS's hierarchical sampling: rounds that look at the field through a sigmoid of growing sharpness.

Wang et al. 2021, NeuS, section 3.3 and supplement (hierarchical sampling): signed distances become opacities by a
sigmoid whose slope doubles from round to round, whatever the slope of the scene is, and each round adds points where
the surface then seems to be.

Fields here give densities, not signed distances, so the sigmoid's argument is made from the density: with
x = density * delta, the optical depth of a first interval at that place, let

  f = log(exp(x) - 1),   sigmoid(f) = 1 - exp(-x),

which is minus infinity in empty space, zero where one interval stops half of the light, and x in dense matter: it
rises into a surface as minus the signed distance does. Round k = 0, 1, ... takes a = sigmoid(sharpness 2^k f) for the
opacity at a point, and for a section between two points the larger of its ends'. Where a ray enters a surface this is
NeuS's (Phi_i - Phi_{i+1}) / Phi_i, Phi = 1 - a (Eq. 13, with 1 at the outer end), and it also works for what has no
surface, such as fog.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float

from nerfjax import stepfun
from nerfjax.errors import UserError
from nerfjax.geometry.warps import t_from_s
from nerfjax.samplers import placement
from nerfjax.samplers.base import DensityFn, Sampler, SamplerState, no_loss, no_refresh, stateless
from nerfjax.types import Array, Intervals, Rays, SamplerInfo

LEVEL = 1  # as the final level counts where there is one before it: never the coarse field's
ARGUMENT_MAX = 80.0


def sharpened_opacity(optical_depth: Float[Array, "*batch"], slope: float) -> Float[Array, "*batch"]:
    """``sigmoid(slope * log(exp(x) - 1))`` of optical depths x: 0 at 0, 1/2 at log 2, 1 at infinity.

    Args:
      optical_depth: [...] not negative.
      slope: 1 gives the opacity ``1 - exp(-x)``; larger ones sharpen its contrast.

    Returns:
      [...].
    """
    x = jnp.clip(optical_depth, 1e-30, ARGUMENT_MAX)
    # log(exp(x) - 1) = x + log(1 - exp(-x)), without overflow.
    return jax.nn.sigmoid(slope * (x + jnp.log(-jnp.expm1(-x))))


def section_weights(opacity: Float[Array, "... P"]) -> Float[Array, "... P-1"]:
    """Weights of the sections between points: ``a_i prod_{j<i} (1 - a_j)``, a_i the larger opacity of the two ends.

    Args:
      opacity: [..., P] at the points.

    Returns:
      [..., P-1].
    """
    section = jnp.maximum(opacity[..., :-1], opacity[..., 1:])
    through = jnp.cumprod(1.0 - section, axis=-1)
    return section * jnp.concatenate([jnp.ones_like(through[..., :1]), through[..., :-1]], axis=-1)


def neus(
    *,
    num_uniform: int = 64,
    num_importance: int = 64,
    num_rounds: int = 4,
    sharpness: float = 1.0,
    padding: float = 1e-5,
    spacing: str = "linear",
    jitter: str = "single",
    randomize: str = "edges",
    deterministic: bool = False,
) -> Sampler:
    """Adds points where the surface is, in rounds that sharpen the density's contrast.

    ``num_uniform`` points in equal steps of s, both ends of the ray among them, are evaluated; each round draws
    ``num_importance / num_rounds`` more by inverse CDF from the weights of the sections between all points so far,
    with ``padding`` added, and evaluates the field at these alone. The points of the last round need no density. All
    points are the edges of the final intervals.

    Args:
      num_uniform: points of the first pass, at least 2.
      num_importance: points that the rounds add, a multiple of their number.
      num_rounds: rounds.
      sharpness: slope of the sigmoid in the first round; it doubles in each.
      padding: weight added to each section, so that none is unreachable.
      spacing, jitter, randomize, deterministic: as in ``stratified``; under ``randomize="edges"`` the first points
        but the ends move by up to half a step.

    Returns:
      The sampler; it has no state. It evaluates the field num_uniform + num_importance (1 - 1 / num_rounds) times
      per ray to find the points and num_uniform + num_importance - 1 times over the final intervals; the defaults
      make 112 + 127.

    Raises:
      UserError: an option is not valid.
    """
    placement.check_counts(num_importance=num_importance, num_rounds=num_rounds)
    if num_uniform < 2:
        raise UserError("a ray has two ends", field="num_uniform", found=num_uniform, expected="2 or more")
    if num_importance % num_rounds:
        raise UserError(
            "each round adds the same number of points", field="num_importance", found=num_importance,
            expected=f"a multiple of num_rounds = {num_rounds}",
        )  # fmt: skip
    if not padding > 0.0 or not sharpness > 0.0:
        field = "sharpness" if padding > 0.0 else "padding"
        raise UserError("it must be positive", field=field, found=min(padding, sharpness), expected="above 0")
    how = placement.placement(spacing=spacing, jitter=jitter, randomize=randomize, deterministic=deterministic)
    per_round = num_importance // num_rounds

    def optical_depth(rays: Rays, density_fn: DensityFn, s: Array) -> Array:
        """[N, P] at points ``s`` [N, P], of intervals as long as those of the first pass are there."""
        t = t_from_s(spacing, s, rays.near, rays.far)
        t = lax.cummax(t, axis=1)  # some warps are monotone up to the last bit only
        # Cones and multisamples need an extent, the cells around the points; point fields see the points.
        cells = lax.stop_gradient(Intervals(t=_cells(t), s=_cells(s), t_point=t))
        density = density_fn(rays, cells, level=LEVEL)
        half = 0.5 / num_uniform
        begin, end = (
            t_from_s(spacing, jnp.clip(s + side, 0.0, 1.0), rays.near, rays.far) for side in (-half, half)
        )  # fmt: skip
        return lax.stop_gradient(density * (end - begin))

    def sample(
        key: Array, state: SamplerState, rays: Rays, density_fn: DensityFn, *, step
    ) -> tuple[Intervals, SamplerInfo]:
        del state, step
        key_first, key_drawn, key_points = jax.random.split(key, 3)
        s = placement.uniform_edges(how, key_first, rays, num_uniform - 1)
        depth = optical_depth(rays, density_fn, s)
        for k in range(num_rounds):
            weights = section_weights(sharpened_opacity(depth, sharpness * 2.0**k))
            jitter_k = placement.draw_jitter(how, jax.random.fold_in(key_drawn, k), rays, per_round)
            drawn = stepfun.sample(jitter_k, s, weights, per_round, padding=padding)
            if k == num_rounds - 1:
                s = stepfun.merge_edges(s, drawn)
                break
            points = (s, drawn), (depth, optical_depth(rays, density_fn, drawn))
            s, depth = lax.sort([jnp.concatenate(pair, axis=1) for pair in points], dimension=1, num_keys=1)
        intervals = placement.intervals_from_edges(how, key_points, rays, s)
        looked = num_uniform + num_importance - per_round
        return intervals, placement.dense_info(rays, evaluations=looked + num_uniform + num_importance - 1)

    return Sampler(init=stateless, sample=sample, refresh=no_refresh, loss=no_loss)


def _cells(points: Array) -> Array:
    """Edges [N, P+1] between points [N, P], the first and the last point themselves at the ends."""
    return jnp.concatenate([points[:, :1], 0.5 * (points[:, 1:] + points[:, :-1]), points[:, -1:]], axis=1)
