"""Where methods differ most on the same test pixels: the crops that one looks at side by side."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from nerfjax.image_metrics import MSE_MIN
from nerfjax.runs.records import Evaluation, is_number

CANDIDATES = 12
SIDES = (24, 96)


class Crop(NamedTuple):
    """The same pixels of one test view, as several evaluations rendered them.

    Attributes:
      view: name of the image.
      box: left, top, right, bottom; pixels.
      context: the whole ground truth with the box drawn in.
      target: ground truth.
      predictions: of each evaluation.
      errors: error maps of each evaluation, None where they are missing.
      psnr: of each prediction inside of the box, dB.
      spread: the mean squared errors' range inside of the box, by which crops are ordered.
    """

    view: str
    box: tuple[int, int, int, int]
    context: Image.Image
    target: Image.Image
    predictions: list[Image.Image]
    errors: list[Image.Image | None]
    psnr: list[float]
    spread: float


def worst_crops(evaluations: Sequence[Evaluation], *, count: int = 3) -> list[Crop]:
    """Returns the crops in which the mean squared errors of some evaluations differ most, one per view at most.

    Args:
      evaluations: two or more of the same views. Views that one of them lacks, or has in another size, and pictures
        that are missing or damaged are left out.
      count: number of crops.
    """
    names = [name for name in evaluations[0].images if all(name in each.images for each in evaluations)]
    # The views whose means differ most are the likely ones; to look at all takes a second a view at full size.
    names = sorted(names, key=lambda name: -_spread_of_view(name, evaluations))[:CANDIDATES]
    crops = [crop for name in names if (crop := _crop(name, evaluations)) is not None]
    return sorted(crops, key=lambda crop: -crop.spread)[:count]


def window_means(values: np.ndarray, side: int) -> np.ndarray:
    """Returns the means [H - side + 1, W - side + 1] of all side x side windows of values [H, W]."""
    sums = np.pad(np.cumsum(np.cumsum(values.astype(np.float64), axis=0), axis=1), ((1, 0), (1, 0)))
    totals = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    return totals / side**2


def _crop(name: str, evaluations: Sequence[Evaluation]) -> Crop | None:
    rows = [evaluation.images[name] for evaluation in evaluations]
    target = _picture(evaluations[0], rows[0].get("target"))
    predictions = [_picture(each, row.get("prediction")) for each, row in zip(evaluations, rows, strict=True)]
    if target is None or any(picture is None or picture.size != target.size for picture in predictions):
        return None
    truth = np.asarray(target, np.float32) / 255
    squared = [np.mean((np.asarray(picture, np.float32) / 255 - truth) ** 2, axis=-1) for picture in predictions]
    side = min(max(SIDES[0], min(min(target.size) // 4, SIDES[1])), *target.size)
    means = np.stack([window_means(each, side) for each in squared])
    spread = means.max(axis=0) - means.min(axis=0)
    top, left = (int(i) for i in np.unravel_index(np.argmax(spread), spread.shape))
    box = (left, top, left + side, top + side)
    errors = [_picture(each, row.get("error")) for each, row in zip(evaluations, rows, strict=True)]
    return Crop(
        view=name,
        box=box,
        context=_with_box(target, box),
        target=target.crop(box),
        predictions=[picture.crop(box) for picture in predictions],
        errors=[None if each is None or each.size != target.size else each.crop(box) for each in errors],
        psnr=[float(-10 * np.log10(max(mean, MSE_MIN))) for mean in means[:, top, left]],
        spread=float(spread[top, left]),
    )


def _spread_of_view(name: str, evaluations: Sequence[Evaluation]) -> float:
    values = [evaluation.images[name].get("psnr") for evaluation in evaluations]
    errors = [10 ** (-value / 10) for value in values if is_number(value)]
    return max(errors) - min(errors) if errors else 0.0


def _picture(evaluation: Evaluation, path: object) -> Image.Image | None:
    """Opens a picture of an evaluation's own folder; None where there is none that can be read."""
    if not isinstance(path, str):
        return None
    file: pathlib.Path = (evaluation.folder / path).resolve()
    if not file.is_relative_to(evaluation.folder.resolve()):
        return None
    try:
        with Image.open(file) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _with_box(image: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
    drawn = image.copy()
    width = max(1, round(max(image.size) / 200))
    left, top, right, bottom = box
    for grow, color in ((width, "black"), (0, "white")):
        outline = (left - grow, top - grow, right - 1 + grow, bottom - 1 + grow)
        ImageDraw.Draw(drawn).rectangle(outline, outline=color, width=width)
    return drawn
