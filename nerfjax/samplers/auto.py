"""The sampling configuration that a capture asks for, from what was measured of it.

``recommend`` is a pure function from facts to explicit values, each with its reason; it makes no sampler. The rules
are those of sampling theory. Notation: p is a pixel's width on the content, L the part of a ray that is integrated.

- Along the ray, a surface is located to a pixel's width when the final intervals are as short as p. A round of n
  intervals narrows the search to the B = 4 that hold the weight of a surface and its neighbours, so that rounds
  n_1 ... n_k and n final intervals resolve (n_1 / B) ... (n_k / B) n of the N = (dt/ds) / p intervals that equal
  spacing would need. A grid of n cells shows nothing that fewer than two cells per interval hide.
- Across it, an image shows frequencies up to 1 / (2 p); a trilinear grid carries them with two cells per pixel
  (Instant NGP's 2048 on Blender's 800 x 800 pixels are 1.8).
- Space is covered by cascades, each twice as wide: content at r half sides of the box needs 1 + log2 r of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nerfjax.errors import UserError
from nerfjax.samplers.scene_facts import SceneFacts

BINS = 4  # intervals of a round in which the weight of a surface lies
ROUNDS = (((64,), 32), ((96,), 32), ((128,), 32), ((64, 64), 32), ((128, 64), 48), ((256, 96), 48))
SWITCH = 0.5  # another spacing than the scene's must need fewer than this share of its intervals
MARGIN = 2.0  # content without texture has no sparse points
UNKNOWN_REACH = 16.0  # half sides of the box, where no point tells (instant-ngp's usual aabb_scale)
CELLS_PER_PIXEL = 2  # of the field's finest level, along a line
EVALUATIONS = 2**16
DEFAULT = "proposal"
# Where in a config the value of each field goes; a place that the chosen members do not have is left out.
KEYS = {
    "near": "scene.near",
    "far": "scene.far",
    "sampler": "sampler.name",
    "spacing": "sampler.{sampler}.spacing",
    "num_proposal": "sampler.{sampler}.num_proposal",
    "num_final": "sampler.{sampler}.num_final",
    "padding": "sampler.{sampler}.padding",
    "num_samples": "sampler.{sampler}.num_samples",
    "num_coarse": "sampler.{sampler}.num_coarse",
    "num_fine": "sampler.{sampler}.num_fine",
    "resolution": "sampler.{sampler}.resolution",
    "cascades": "sampler.{sampler}.cascades",
    "diagonal_steps": "sampler.{sampler}.diagonal_steps",
    "samples_per_ray": "sampler.{sampler}.samples_per_ray",
    "proposal_resolution": "network.{network}.max_resolution",
    "field_resolution": "field.{field}.max_resolution",
    "field_log2_size": "field.{field}.log2_size",
    "rays": "train.batch_rays",
}


class Choice(NamedTuple):
    """One field's value and the reason for it, a sentence; ``by_hand`` where a user set it."""

    field: str
    value: Any
    reason: str
    by_hand: bool = False


class Recommendation(NamedTuple):
    """A value for every field of ``KEYS``, in that order."""

    choices: tuple[Choice, ...]

    def values(self) -> dict[str, Any]:
        """Returns {field: value}."""
        return {choice.field: choice.value for choice in self.choices}


def auto(
    *,
    sampler: str | None = None,
    spacing: str | None = None,
    num_proposal: tuple[int, ...] | None = None,
    num_final: int | None = None,
    padding: float | None = None,
    num_samples: int | None = None,
    num_coarse: int | None = None,
    num_fine: int | None = None,
    resolution: int | None = None,
    cascades: int | None = None,
    diagonal_steps: int | None = None,
    samples_per_ray: float | None = None,
    proposal_resolution: int | tuple[int, ...] | None = None,
    field_resolution: int | None = None,
    field_log2_size: int | None = None,
    rays: int | None = None,
    near: float | None = None,
    far: float | None = None,
    evaluations: int = EVALUATIONS,
    keep: tuple[str, ...] = (),
    resolved: bool = False,
):
    """The options of ``config.sampler.auto``: None is automatic, anything else is set by hand and stays.

    It makes no sampler: the name "auto" is replaced by the sampler that it stands for once the scene is known.

    Args:
      sampler: name of the sampler.
      spacing, num_proposal, num_final, padding, num_samples, num_coarse, num_fine, resolution, cascades,
        diagonal_steps, samples_per_ray: options of the sampler.
      proposal_resolution: finest cells a side of the proposal networks' grids.
      field_resolution, field_log2_size: finest cells a side, and log2 of the rows, of the field's grid.
      rays: of a step.
      near, far: distances between which rays are integrated, scene units.
      evaluations: of the main field that a step may spend; a GPU takes four times as many at ease.
      keep: keys of the config whose values stay as they are, such as "train.batch_rays".
      resolved: not to be set: whether the config has become explicit.

    Raises:
      UserError: always.
    """
    raise UserError(
        "sampler 'auto' stands for another one, which only a scene decides", field="config.sampler.name",
        found="auto", fix="resolve the config with nerfjax.train.automatic.resolve_auto(config, scene)",
    )  # fmt: skip


def recommend(
    facts: SceneFacts, by_hand: Mapping[str, Any] | None = None, *, evaluations: int = EVALUATIONS
) -> Recommendation:
    """Returns a value with its reason for every field of ``KEYS``.

    Args:
      facts: of the capture.
      by_hand: {field: value} that a user has set; the other fields follow from them.
      evaluations: of the main field that a step may spend.

    Raises:
      UserError: the facts contradict each other, or a value set by hand is of the wrong type.
    """
    check_facts(facts)
    found: dict[str, Choice] = {}
    by_hand = dict(by_hand or {})

    def choose(field: str, value: Any, reason: str) -> Any:
        if field in by_hand:
            hand = _typed(field, by_hand[field], value)
            reason = "set by hand" + ("" if hand == value else f"; automatic: {value}")
            found[field] = Choice(field, hand, reason, by_hand=True)
        else:
            found[field] = Choice(field, value, reason)
        return found[field].value

    _choose_bounds(facts, choose)
    sampler = _choose_sampler(facts, choose)
    needed = _choose_spacing(facts, choose)
    rounds = _choose_counts(needed, choose)
    _choose_grid(facts, choose)
    _choose_networks(facts, rounds, choose)
    spent = {field: choice.value for field, choice in found.items()}
    _choose_batch(facts, _per_ray(sampler, spent), evaluations, choose)
    return Recommendation(tuple(found[field] for field in KEYS))


def check_facts(facts: SceneFacts) -> None:
    """Raises UserError where facts contradict each other."""
    near, middle, far = facts.depth
    rules = {
        "near is not less than far": 0 <= facts.near < facts.far < math.inf,
        "distances of the content do not rise": 0 < near <= middle <= far < math.inf,
        "a pixel has no width": 0 < facts.pixel < math.inf and 0 < facts.cell < math.inf,
        "the box has no extent": 0 < facts.half < math.inf,
        "the share of a ray is none": 0 < facts.share <= 1,
        "more pixels show content than there are": 0 < facts.content_pixels <= facts.pixels,
        "there is no image": 0 < facts.images <= facts.pixels and 1 <= facts.views <= facts.images,
        "the scene's spacing was not measured": facts.bounded or facts.spacing in facts.intervals,
        "a ray needs no interval": all(0 < count < math.inf for count in facts.intervals.values()),
        "a bounded scene has content far outside its box": not facts.bounded or facts.reach <= 2,
        "all content is nearer than near or farther than far": near < facts.far and far > facts.near,
    }
    for problem, holds in rules.items():
        if not holds:
            raise UserError(
                f"the sampling cannot be chosen: {problem}", found=facts, fix="run nerfjax inspect on the capture"
            )


def _choose_bounds(facts: SceneFacts, choose: Callable) -> None:
    near, middle, far = facts.depth
    if facts.bounded:
        what = f"cameras stand around a box of half side {facts.half:.3g}; rays are cut to it besides"
        choose("near", facts.near, f"{what}, and nothing outside of it is drawn")
        choose("far", facts.far, f"{what}, without contraction")
        return
    if facts.content == "points":
        reason = f"the nearest twentieth of the seen points is {near:.3g} away, with a margin for what has no points"
    else:
        reason = (
            f"what the capture states, or the usual: no sparse points tell (content is taken to be {middle:.3g} away)"
        )
    choose("near", facts.near, reason)
    seen = f"points are seen up to {far:.3g}" if facts.content == "points" else "what the capture states, or the usual"
    choose("far", facts.far, f"{seen}; space beyond {facts.half:.3g} from the middle is contracted, so far is cheap")


def _choose_sampler(facts: SceneFacts, choose: Callable) -> str:
    known = {
        "points": f"nine tenths of the seen points lie in {facts.share:.0%} of a ray",
        "silhouettes": f"the silhouettes leave {facts.share:.0%} of the box",
        "box": "nothing tells where in the box the content is",
        "cameras": "nothing tells where on a ray the content is",
    }[facts.content]
    return choose("sampler", DEFAULT, f"{known}; proposal networks learn it from the first step, ray by ray")


def _choose_spacing(facts: SceneFacts, choose: Callable) -> float | int:
    """Chooses the spacing; returns N, the equal intervals that it needs at the median sighting."""
    best = min(facts.intervals, key=facts.intervals.get)
    if facts.bounded:
        reason = "the scene is bounded: pixels are of nearly one width along a ray"
        spacing = choose("spacing", "linear", reason)
        return facts.intervals.get(spacing, facts.intervals["linear"])
    own, least = facts.intervals[facts.spacing], facts.intervals[best]
    if facts.content == "points" and least < SWITCH * own:
        text = f"at the points it needs {least:.0f} equal intervals for the width of a pixel, {facts.spacing} {own:.0f}"
        spacing = choose("spacing", best, text)
    else:
        text = f"the scene's own: {own:.0f} equal intervals give the width of a pixel at {facts.depth[1]:.3g}"
        spacing = choose("spacing", facts.spacing, text)
    return facts.intervals.get(spacing, own)


def _resolved(rounds, final: int) -> float | int:
    """The intervals of equal spacing that rounds resolve."""
    return math.prod(max(count / BINS, 1.0) for count in rounds) * final


def _choose_counts(needed: float | int, choose: Callable) -> tuple[int, ...]:
    """Chooses the numbers of intervals of the dense samplers; returns those of the proposal rounds."""
    rounds, final = next((entry for entry in ROUNDS if _resolved(*entry) >= needed), ROUNDS[-1])
    least = f"the least of the usual rounds that tell {needed:.0f} intervals apart, as the spacing needs"
    rounds = choose("num_proposal", rounds, least)
    text = (
        f"with {' and '.join(map(str, rounds)) or 'no'} proposal intervals they resolve {_resolved(rounds, final):.0f}"
    )
    final = choose("num_final", final, text)
    most = max((*rounds, 1))
    choose("padding", float(f"{0.064 / most:.3g}"), f"over {most} intervals, one sample in seventeen is left to chance")
    many = _multiple(needed, 64, 256)
    choose("num_samples", many, f"{needed:.0f} intervals are as long as a pixel is wide (64 to 256 are sensible)")
    coarse = choose("num_coarse", 64, "enough to hit what is wider than a sixty-fourth of the ray")
    fine = _multiple(BINS * needed / max(coarse, 1), 64, 128)
    choose("num_fine", fine, f"with {coarse} coarse ones they resolve {_resolved((coarse,), fine):.0f} intervals")
    return tuple(rounds)


def _multiple(number: float | int, low: int, high: int, of: int = 16) -> int:
    return int(min(max(-(-number // of) * of, low), high))


def _choose_grid(facts: SceneFacts, choose: Callable) -> None:
    pixel = facts.cell * (1 if facts.bounded else 2)  # in sides of the box; the contracted cube is twice as wide
    resolution = 2 ** math.floor(math.log2(1 / (4 * pixel)))
    text = f"{1 / pixel:.0f} pixels span the box at the nearest content, and a cell should hold four or more"
    text = f"{text} (32 to 128: 128 are 2 million cells a cascade)"
    resolution = choose("resolution", min(max(resolution, 32), 128), text)
    text = "a step as long as a pixel is wide at the nearest content; 256 to 1024 to the box's diagonal"
    steps = choose("diagonal_steps", _multiple(math.sqrt(3) / pixel, 256, 1024), text)
    if facts.bounded:
        choose("cascades", 1, "the box holds everything")
    else:
        known = facts.content == "points"
        reach = MARGIN * max(facts.reach, 1.0) if known else UNKNOWN_REACH
        text = f"points reach {facts.reach:.3g} half sides of the box, doubled for what has none" if known else (
            "no sparse points tell; 16 half sides of the box are usual"
        )  # fmt: skip
        choose("cascades", min(1 + math.ceil(math.log2(reach) - 1e-9), 8), f"{text}; each cascade doubles the reach")
    per_cell = steps / (math.sqrt(3) * max(resolution, 1))
    budget = _multiple(1.5 * 2 * 3 * per_cell, 32, 128)
    text = f"two surfaces, each in a cell and its neighbours, crossed at a slant, {per_cell:.1f} steps to a cell"
    choose("samples_per_ray", float(budget), text)


def _choose_networks(facts: SceneFacts, rounds: tuple[int, ...], choose: Callable) -> None:
    pixels = 1 / facts.cell
    field = min(max(round(CELLS_PER_PIXEL * pixels), 128), 8192)
    where = "the box" if facts.bounded else "contracted space"
    text = f"{pixels:.0f} pixels span {where} at the nearest content, each worth two cells for its detail (128 to 8192)"
    field = choose("field_resolution", field, text)
    views = max(facts.views / (2 if facts.facing in ("object", "inward") else 1), 1.0)
    cells = CELLS_PER_PIXEL**2 * facts.content_pixels / views
    text = f"{facts.content_pixels:.3g} pixels show content, each spot about {views:.0f} times, in four cells each"
    choose("field_log2_size", min(max(round(math.log2(cells)), 15), 19), f"{text}: {cells:.2g} rows (2^15 to 2^19)")
    cells, resolved = [], 1.0
    for count in rounds:
        resolved = resolved * count
        cells.append(int(min(max(2 * resolved, 64), 512, max(field, 64))))
        resolved /= BINS
    value = cells[0] if len(cells) == 1 else tuple(cells)
    choose("proposal_resolution", value or 128, "two cells for each interval that a round tells apart (at most 512)")


def _per_ray(sampler: str, values: Mapping[str, Any]) -> float | int:
    """Evaluations of the main field that a sampler spends on a ray."""
    if sampler == "stratified":
        return values["num_samples"]
    if sampler == "hierarchical":
        return 2 * values["num_coarse"] + values["num_fine"]
    return values["num_final"] if sampler == "proposal" else values["samples_per_ray"]


def _choose_batch(facts: SceneFacts, per_ray: float | int, evaluations: int, choose: Callable) -> None:
    rays = 2 ** math.floor(math.log2(max(evaluations / max(per_ray, 1), 1)))
    most = 2 ** math.floor(math.log2(facts.pixels))
    text = f"{evaluations} evaluations of the field a step, {per_ray:g} on a ray"
    text += "" if most >= rays else f", but no more rays than the {facts.pixels} pixels"
    choose("rays", min(max(rays, 256), 65536, most), text)


def _typed(field: str, hand: Any, value: Any) -> Any:
    """The value set by hand, where it is of the type of the automatic one."""
    kinds: tuple[type, ...] = (type(value),)
    if field == "proposal_resolution":
        kinds = (int, tuple)
    elif isinstance(value, float):
        kinds = (float, int)
    if isinstance(hand, list):
        hand = tuple(hand)
    if isinstance(hand, bool) or not isinstance(hand, kinds):
        raise UserError(
            f"config.sampler.auto.{field} takes another type of value", field=f"config.sampler.auto.{field}",
            found=repr(hand), expected=f"None (automatic), or {kinds[0].__name__}, such as {value!r}",
        )  # fmt: skip
    return float(hand) if isinstance(value, float) else hand
