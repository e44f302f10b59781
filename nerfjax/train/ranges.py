"""The ranges of the training's numbers: what lies outside is refused before anything compiles."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from nerfjax.errors import UserError
from nerfjax.train import configuration
from nerfjax.train.curriculum import SECTION, flat_keys, stage_plans
from nerfjax.train.penalties import PENALTIES


class Range(NamedTuple):
    """Numbers from ``low`` to ``high``, both included or not, in words ``told``."""

    told: str
    low: float
    high: float = math.inf
    with_low: bool = True
    with_high: bool = True

    def holds(self, value: Any) -> bool:
        """Whether a number lies inside; what is not finite never does."""
        return (
            math.isfinite(value)
            and (value >= self.low if self.with_low else value > self.low)
            and (value <= self.high if self.with_high else value < self.high)
        )


COUNT = Range("positive", 1)
POSITIVE = Range("positive", 0, with_low=False)
NOT_NEGATIVE = Range("at least 0", 0)
SHARE = Range("at least 0 and below 1", 0, 1, with_high=False)
RANGES = {
    **{f"train.{key}": COUNT for key in ("steps", "batch_rays", "log_every", "steps_per_dispatch", "checkpoint_every")},
    **{f"train.{key}": NOT_NEGATIVE for key in ("eval_every", "keep_every", "keep_best")},
    **{f"train.{key}_weight": NOT_NEGATIVE for key in ("coarse", "distortion", "depth", *PENALTIES)},
    "train.seed": Range("at least 0 and below 2^32", 0, 2**32, with_high=False),
    "train.ema": SHARE,
    # An old checkpoint may go before the hashes of the new one are written.
    "train.keep_latest": Range("at least 2", 2),
    "optimizer.adam.b1": SHARE,
    "optimizer.adam.b2": SHARE,
    "optimizer.adam.eps": POSITIVE,
    "optimizer.adam.weight_decay": NOT_NEGATIVE,
    "optimizer.adam.clip_norm": NOT_NEGATIVE,
    "optimizer.adam.table_rate": NOT_NEGATIVE,
    **{f"schedule.{name}.initial": POSITIVE for name in ("log_lerp", "exponential", "cosine")},
    **{f"schedule.{name}.steps": NOT_NEGATIVE for name in ("log_lerp", "exponential", "cosine")},
    "schedule.log_lerp.final": POSITIVE,
    "schedule.log_lerp.delay_steps": NOT_NEGATIVE,
    "schedule.log_lerp.delay_scale": Range("at least 0 and at most 1", 0, 1),
    "schedule.exponential.rate": POSITIVE,
    "schedule.exponential.warmup": NOT_NEGATIVE,
    "schedule.cosine.final": NOT_NEGATIVE,
    "schedule.cosine.warmup": NOT_NEGATIVE,
    "loss.charbonnier.padding": POSITIVE,
    **{f"data.{key}": COUNT for key in ("memory_mb", "images_per_batch", "patch", "reuse")},
    "evaluation.memory_mb": COUNT,
}


def check_ranges(config: ConfigDict) -> None:
    """Checks the numbers of the whole config and of each stage of its curriculum; options of other members are free.

    Raises:
      UserError: one is out of its range.
    """
    base = flat_keys(config)
    _check(config, base, lambda key: f"config.{key}")
    for plan in stage_plans(config):
        stage = configuration.stage_config(config, plan)
        changed = {key: value for key, value in flat_keys(stage).items() if base.get(key) != value}
        _check(
            stage, changed, lambda key, plan=plan: f"config.{SECTION}.stage{plan.index}.{key.removeprefix('train.')}"
        )
    if config.train.keep_best and not config.train.eval_every:
        raise UserError(
            "to keep the best checkpoints, the run must be evaluated", field="config.train.eval_every", found=0,
            expected="a number of steps, since config.train.keep_best is on",
        )  # fmt: skip


def _check(config: ConfigDict, values: dict[str, Any], field_of) -> None:
    for key, allowed in RANGES.items():
        section, member, *option = key.split(".")
        if key not in values or (option and config[section].name != member):
            continue
        if not allowed.holds(values[key]):
            raise UserError(
                f"config.{key} must be {allowed.told}", field=field_of(key), found=values[key], expected=allowed.told
            )
