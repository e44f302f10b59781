"""Whole test images: rendered, measured, and written as pictures anyone can measure again.

A prediction is rounded to 8 bits before it is measured, so its PNG gives the same number. Transparent ground truth is
composited in float over the background that the run renders. The mean is the mean of the per-image values.
``protocol_of`` names every choice beside the numbers, in ``metrics.json``.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import track
from rich.table import Table

from nerfjax.errors import UserError
from nerfjax.image_metrics import MSE_MIN, psnr, quantize_8bit, ssim
from nerfjax.renderer import RenderedImage
from nerfjax.runs.manifest import record_evaluation
from nerfjax.runs.pictures import depth_map, error_map
from nerfjax.scenes.base import Frame
from nerfjax.scenes.images import EXTENSIONS
from nerfjax.types import Cameras

BACKGROUND_LEVELS = {"white": 1.0, "black": 0.0}
TABLE_ROWS = 16
RenderView = Callable[[Cameras], RenderedImage]


def protocol_of(background: float | int) -> dict[str, str]:
    """Returns the variant of every metric, in words; ``background`` is the grey level behind the images."""
    names = {level: name for name, level in BACKGROUND_LEVELS.items()}
    return {
        "name": "nerf",
        "prediction": "clipped to [0, 1], rounded to 8 bits; sRGB; whole images",
        "target": "the capture's image, encoded sRGB values; alpha composited in float32",
        "background": names.get(background, f"grey {background:g}"),
        "psnr": f"10 log10(1 / MSE over pixels and channels), data range 1, MSE at least {MSE_MIN:g}",
        "ssim": "dm-pix, Gaussian window 11x11, sigma 1.5, valid region, data range 1, mean over channels",
        "masks": "ignored pixels left out of PSNR, counted as perfect in SSIM",
        "mean": "mean of the per-image values",
    }


def evaluate_run(run: Any, *, split: str = "test") -> dict[str, Any]:
    """Evaluates one split of a loaded run into RUN/eval/STEP (RUN/eval/STEP-SPLIT for other splits than test).

    Args:
      run: what ``train.run.load_run`` returns.
      split: "train", "val" or "test".

    Returns:
      The document of ``schemas/eval.schema.json``.

    Raises:
      UserError: the split has no frames.
    """
    scene = run.experiment.scene
    frames, cameras = scene.subset(split)
    if not frames:
        counts = ", ".join(f"{name} {len(scene.indices(name))}" for name in ("train", "val", "test"))
        raise UserError(
            f"The {split} split has no frames.", file=scene.source, found=counts, fix="choose another --split"
        )
    step = int(run.step)
    out = pathlib.Path(run.workdir) / "eval" / (str(step) if split == "test" else f"{step}-{split}")
    background = background_level(run.config, scene.background)
    name = pathlib.Path(run.workdir).resolve().name
    result = evaluate(
        run.render_view, frames, cameras, out=out, run=name, step=step, split=split, background=background
    )
    record_evaluation(run.workdir, result)
    return result


def render_along(run: Any, *, split: str) -> None:
    """Takes part in the renderings of ``evaluate_run``, which the first of several processes calls, and writes nothing.

    The state lies on the devices of all processes, so all of them must run the programs that read it.
    """
    cameras = run.experiment.scene.subset(split).cameras
    for row in range(len(cameras)):
        run.render_view(cameras[np.array([row])])


def score_views(experiment: Any, state: Any, *, count: int = 4) -> dict[str, Any]:
    """Measures a few evenly spaced held-out views in the middle of training and writes no pictures.

    Args:
      experiment: what ``train.build.build_experiment`` returns.
      state: the training state.
      count: number of views; they come from the val split where there is one, else from the test split.

    Returns:
      ``{"eval/psnr", "eval/ssim"}``, means over the views, ``"eval/seconds"`` that it took, and ``"eval/view"``,
      [H, W, 3] uint8: the first of them as rendered and, to its right, as it should be; empty where no view is held
      out.
    """
    scene = experiment.scene
    frames, cameras = scene.subset("val" if scene.indices("val") else "test")
    rows = np.unique(np.linspace(0, len(frames) - 1, min(count, len(frames))).round().astype(int)) if frames else ()
    background = background_level(experiment.config, scene.background)
    scores, pictures, start = [], [], time.perf_counter()
    for row in rows:
        prediction = _rounded(experiment.render_image(state, cameras[np.array([row])]))
        target, valid = target_image(frames[row], background)
        scores.append(_score(prediction, target, valid))
        pictures.append(np.concatenate([prediction, target], axis=1))
    if not scores:
        return {}
    means = {f"eval/{metric}": float(np.mean([score[metric] for score in scores])) for metric in ("psnr", "ssim")}
    means["eval/seconds"] = time.perf_counter() - start
    return {**means, "eval/view": np.round(255 * pictures[0]).astype(np.uint8)}


def background_level(config: Any, implied: str | None) -> float:
    """Returns the grey level behind transparent ground truth: the one that the run renders.

    Args:
      config: the run's config.
      implied: the background that the capture's format implies; it serves where the run learns its background.
    """
    name = config["background"]["name"]
    if name == "random":
        return float(config["background"]["random"]["shown"])
    return BACKGROUND_LEVELS.get(name, BACKGROUND_LEVELS[implied or "white"])


def evaluate(
    render_view: RenderView,
    frames: Sequence[Frame],
    cameras: Cameras,
    *,
    out: pathlib.Path,
    run: str = "",
    step: int = 0,
    split: str = "test",
    background: float | int = 1.0,
) -> dict[str, Any]:
    """Renders and measures whole images, and writes them with error and depth maps.

    Args:
      render_view: camera (one row, NumPy leaves) → ``RenderedImage``.
      frames: F frames with their ground truth.
      cameras: F cameras, row i for ``frames[i]``.
      out: the folder to write: metrics.json, predictions/, targets/, errors/, depths/. It appears when all is done.
      run: name of the run.
      step: training step.
      split: name of the split.
      background: grey level in [0, 1] that transparent ground truth is composited over.

    Returns:
      ``{run, step, split, protocol, n, mean: {psnr, ssim}, images: [{name, psnr, ssim, …}]}``, paths relative to
      ``out``.
    """
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    stems = picture_names([frame.name for frame in frames])
    images = []
    for i, frame in _progress(frames, f"evaluating {split}"):
        rendered = render_view(cameras[np.array([i])])
        images.append(_measure(frame, rendered, stem=stems[i], folder=partial, background=background))
    mean = {metric: float(np.mean([image[metric] for image in images])) for metric in ("psnr", "ssim")}
    result = dict(
        run=run, step=step, split=split, protocol=protocol_of(background), n=len(images), mean=mean, images=images
    )
    (partial / "metrics.json").write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
    _replace_folder(partial, out)
    return result


def _measure(
    frame: Frame, rendered: RenderedImage, *, stem: str, folder: pathlib.Path, background: float | int
) -> dict[str, Any]:
    target, valid = target_image(frame, background)
    height, width = target.shape[:2]
    prediction = _rounded(rendered)
    depth, depth_range = depth_map(rendered.depth, rendered.accumulation)
    pictures = {
        "prediction": np.rint(prediction * 255).astype(np.uint8),
        "target": np.rint(target * 255).astype(np.uint8),
        "error": error_map(prediction, target, valid),
        "depth": depth,
    }
    paths = {kind: f"{kind}s/{stem}.png" for kind in pictures}
    for kind, picture in pictures.items():
        (folder / paths[kind]).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / paths[kind])
    return {
        "name": frame.name,
        **_score(prediction, target, valid),
        "size": [width, height],
        "valid": float(valid.mean()),
        "depth_range": depth_range,
        **paths,
    }


def _rounded(rendered: RenderedImage) -> np.ndarray:
    return np.asarray(quantize_8bit(np.asarray(rendered.color, np.float32)))


def _score(prediction: np.ndarray, target: np.ndarray, valid: np.ndarray) -> dict[str, float]:
    seen_as_perfect = np.where(valid[..., None], prediction, target)
    return {
        "psnr": float(psnr(prediction[valid], target[valid])),
        "ssim": float(ssim(seen_as_perfect, target)),
    }


def target_image(frame: Frame, background: float | int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ground truth [H, W, 3] float32 in [0, 1], composited, and which pixels count [H, W] bool."""
    stored = frame.image.read()
    image = stored.astype(np.float32) / np.iinfo(stored.dtype).max
    if image.shape[-1] == 4:
        image = image[..., :3] * image[..., 3:] + background * (1 - image[..., 3:])
    valid = np.ones(image.shape[:2], bool)
    if frame.mask is not None:
        mask = frame.mask.read(size=(image.shape[1], image.shape[0]))
        valid = mask[..., :3].max(axis=-1) > np.iinfo(mask.dtype).max // 2
    if not valid.any():
        raise UserError("A mask leaves nothing of an image to measure.", file=frame.mask.path, found=frame.name)
    return image, valid


def picture_names(names: Sequence[str]) -> list[str]:
    """Returns one distinct file stem per frame: the name's folders joined by "__", the image extension left out."""
    stems: list[str] = []
    for name in names:
        path = pathlib.PurePosixPath(name)
        path = path.with_suffix("") if path.suffix.lower() in EXTENSIONS else path
        stem = "__".join(part for part in path.parts if part not in ("/", "..")) or "image"
        while stem in stems:
            stem += "_"
        stems.append(stem)
    return stems


def print_table(result: dict[str, Any]) -> None:
    """Prints PSNR and SSIM, worst image first, and their means; of many images the worst and the best."""
    table = Table(title=f"{result['run']} · step {result['step']} · {result['split']} · n = {result['n']}")
    table.add_column("image", overflow="fold")
    table.add_column("PSNR (dB)", justify="right")
    table.add_column("SSIM", justify="right")
    ordered = sorted(result["images"], key=lambda image: image["psnr"])
    for i, image in enumerate(ordered):
        if len(ordered) <= TABLE_ROWS or i < TABLE_ROWS - 2 or i == len(ordered) - 1:
            table.add_row(image["name"], f"{image['psnr']:.2f}", f"{image['ssim']:.4f}")
        elif i == TABLE_ROWS - 2:
            table.add_row(f"… {len(ordered) - TABLE_ROWS + 1} more, in metrics.json", "", "", style="dim")
    table.add_section()
    table.add_row("mean", f"{result['mean']['psnr']:.2f}", f"{result['mean']['ssim']:.4f}", style="bold")
    Console().print(table)


def _progress(frames: Sequence[Frame], description: str):
    console = Console(stderr=True)
    return track(enumerate(frames), description, total=len(frames), console=console, disable=not console.is_terminal)


def _replace_folder(new: pathlib.Path, old: pathlib.Path) -> None:
    """Puts a finished folder where an older one may be."""
    aside = old.with_name(f".{old.name}.{os.getpid()}.old")
    if old.exists():
        os.replace(old, aside)
    os.replace(new, old)
    shutil.rmtree(aside, ignore_errors=True)
