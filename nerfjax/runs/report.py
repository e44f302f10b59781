"""``RUN/report.html``: one page that shows a run: curves, test views beside ground truth, the cost, the manifest.

The page is static and stands alone (images and curves inside it), so that it can be mailed, or opened from a copy of
the run folder anywhere.
"""

from __future__ import annotations

import base64
import importlib.resources
import io
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import jinja2
import markupsafe
import numpy as np
from matplotlib import colormaps
from PIL import Image

from nerfjax.quantities import format_count, format_seconds
from nerfjax.runs.figures import curve, strip
from nerfjax.runs.pictures import ERROR_COLORS, ERROR_RANGE
from nerfjax.runs.progress import RunProgress, read_metrics, read_progress

MAX_VIEWS = 6
MAX_SIDE = 480
SMALL_SIDE = 200
PICTURES = (("prediction", "prediction"), ("target", "ground truth"), ("error", "error"), ("depth", "depth"))


def write_report(workdir: str | os.PathLike) -> pathlib.Path:
    """Writes the report of a run in whatever state it is.

    Returns:
      The path of the page.

    Raises:
      UserError: the folder is no run's.
    """
    folder = pathlib.Path(workdir)
    progress, metrics = read_progress(folder), read_metrics(folder)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    source = importlib.resources.files("nerfjax.runs").joinpath("report.html.jinja").read_text()
    step, evaluation = max(progress.evaluations.items(), default=(0, None))
    page = environment.from_string(source).render(
        name=folder.resolve().name,
        state=progress.state,
        subtitle=_subtitle(progress),
        tiles=_tiles(progress, metrics, evaluation),
        curves=[markupsafe.Markup(svg) for svg in [*_curves(metrics, progress.evaluations), *_spread(evaluation)]],
        evaluation=evaluation and {**evaluation, "folder": step},
        views=_views(folder / "eval" / str(step), evaluation),
        error_colors=markupsafe.Markup(_gradient(ERROR_COLORS)),
        error_high=f"{ERROR_RANGE[1]:g}",
        cost=_cost(progress, metrics),
        manifest=json.dumps(progress.manifest, indent=2, ensure_ascii=False),
        version=(progress.manifest.get("code") or {}).get("version") or "",
    )
    path = folder / "report.html"
    partial = path.with_name(".report.html.partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(path)
    return path


def _subtitle(progress: RunProgress) -> str:
    config = progress.manifest["config"]
    parts = [f"{section} {config[section]['name']}" for section in ("field", "sampler") if section in config]
    scene = config.get("scene", {})
    if scene.get("source"):
        smaller = scene.get("downscale", 1)
        parts.append(f"scene {scene['source']}" + (f" ÷ {smaller:g}" if smaller != 1 else ""))
    total = f" of {progress.total_steps:,}" if progress.total_steps else ""
    return " · ".join([*parts, f"step {progress.step:,}{total}"])


def _tiles(progress: RunProgress, metrics: Sequence[dict[str, Any]], evaluation: dict[str, Any] | None) -> list[dict]:
    tiles = []
    if evaluation:
        views = f"mean of {evaluation['n']} test view{'s' if evaluation['n'] > 1 else ''}"
        tiles.append({"value": f"{evaluation['mean']['psnr']:.2f} dB", "label": f"PSNR, {views}"})
        tiles.append({"value": f"{evaluation['mean']['ssim']:.4f}", "label": f"SSIM, {views}"})
    seconds = _seconds(progress, metrics)
    if seconds is not None:
        tiles.append({"value": format_seconds(seconds), "label": "training time"})
    rate = _median_of(metrics, "rays_per_second")
    if rate is not None:
        tiles.append({"value": format_count(rate), "label": "rays per second"})
    samples = _median_of(metrics[-10:], "samples_per_ray")
    if samples is not None:
        tiles.append({"value": f"{samples:.1f}", "label": "field evaluations per ray"})
    return tiles


def _curves(metrics: Sequence[dict[str, Any]], evaluations: dict[int, dict[str, Any]]) -> list[str]:
    loss, psnr = _series(metrics, "loss"), _series(metrics, "psnr")
    marks = [(float(step), evaluation["mean"]["psnr"]) for step, evaluation in evaluations.items()]
    curves = []
    if loss:
        curves.append(curve(loss, title="loss", log=min(value for _, value in loss) > 0))
    marks += [mark for mark in _series(metrics, "eval/psnr") if mark[0] not in evaluations]
    if psnr or marks:
        curves.append(curve(psnr, title="PSNR (dB)", marks=marks, labels=("training rays", "held-out views")))
    for name, title in (("learning_rate", "learning rate"), ("samples_per_ray", "field evaluations per ray")):
        series = _series(metrics, name)
        if len({value for _, value in series}) > 1:
            curves.append(curve(series, title=title))
    return curves


def _views(folder: pathlib.Path, evaluation: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The worst, the middle and the best views, so that nobody is shown the best alone."""
    if not evaluation:
        return []
    ordered = sorted(evaluation["images"], key=lambda image: image["psnr"])
    count = min(len(ordered), MAX_VIEWS)
    ranks = np.unique(np.linspace(0, len(ordered) - 1, count).round().astype(int)).tolist()
    views = []
    for rank in ranks:
        image = ordered[rank]
        pictures = [{"caption": caption, "source": _inline(folder / image[kind])} for kind, caption in PICTURES]
        near, far = image["depth_range"]
        pictures[-1]["caption"] = f"depth, {near:.3g} (bright) to {far:.3g}"
        small = max(image["size"]) < SMALL_SIDE
        views.append({**image, "pictures": pictures, "rank": _rank(rank, len(ordered)), "small": small})
    return views


def _rank(rank: int, count: int) -> str:
    return "worst" if rank == 0 else "best" if rank == count - 1 else f"{rank + 1} of {count}"


def _inline(path: pathlib.Path) -> str:
    """A picture as a data URL; big ones are made smaller and become JPEG."""
    with Image.open(path) as image:
        small = image.convert("RGB")
    kind, options = "png", {"optimize": True}
    if max(small.size) > MAX_SIDE:
        small.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
        kind, options = "jpeg", {"quality": 90}
    buffer = io.BytesIO()
    small.save(buffer, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _spread(evaluation: dict[str, Any] | None) -> list[str]:
    if not evaluation or evaluation["n"] <= MAX_VIEWS:
        return []
    values = [image["psnr"] for image in evaluation["images"]]
    return [strip(values, title="PSNR of every test view (dB), and the mean")]


def _cost(progress: RunProgress, metrics: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    manifest = progress.manifest
    devices, packages, code = (manifest.get(key) or {} for key in ("devices", "packages", "code"))
    batch = manifest["config"].get("train", {}).get("batch_rays")
    seconds = _seconds(progress, metrics)
    rate, wait = _median_of(metrics, "rays_per_second"), _median_of(metrics, "data_wait")
    compiled = sum(report.get("compile_seconds") or 0 for report in metrics)
    peak = (manifest.get("end") or {}).get("peak_memory_bytes")
    rows = [
        ("training time", None if seconds is None else format_seconds(seconds)),
        ("of which compiling", format_seconds(compiled) if compiled else None),
        ("steps", f"{progress.step:,}"),
        ("parameters", format_count(manifest["parameters"]) if manifest.get("parameters") else None),
        ("rays", f"{format_count(progress.step * batch)} ({batch:,} a step)" if batch else None),
        ("rays per second", None if rate is None else f"{format_count(rate)} (median)"),
        ("waiting for data", None if wait is None else f"{wait:.1%}"),
        ("peak memory", None if peak is None else f"{peak / 2**30:.2f} GiB"),
        ("device", _device(devices)),
        ("software", ", ".join(f"{name} {packages[name]}" for name in ("python", "jax", "flax") if name in packages)),
        ("code", " ".join(str(part) for part in (code.get("version"), code.get("commit"), _dirty(code)) if part)),
        ("restarts", str(len(manifest.get("restarts") or ()))),
    ]
    return [(name, value) for name, value in rows if value]


def _device(devices: dict[str, Any]) -> str:
    if not devices:
        return ""
    kind = f"{devices.get('device_count')} × {devices.get('device_kind')}"
    return f"{kind}, {devices.get('machine')}, {devices.get('cpu_count')} CPU cores"


def _dirty(code: dict[str, Any]) -> str:
    return "with changes that are not committed" if code.get("dirty") else ""


def _seconds(progress: RunProgress, metrics: Sequence[dict[str, Any]]) -> float | None:
    ended = (progress.manifest.get("end") or {}).get("seconds")
    seconds = [value for _, value in _series(metrics, "seconds")]
    return float(ended) if ended is not None else max(seconds, default=None)


def _series(metrics: Sequence[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    numbers = ((report["step"], report.get(name)) for report in metrics)
    return [(float(step), float(value)) for step, value in numbers if isinstance(value, (int, float))]


def _median_of(metrics: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [value for _, value in _series(metrics, name)]
    return float(np.median(values)) if values else None


def _gradient(colormap: str) -> str:
    colors = (np.asarray(colormaps[colormap](np.linspace(0, 1, 12)))[:, :3] * 255).astype(int)
    return ", ".join(f"rgb({r} {g} {b})" for r, g, b in colors)
