"""The doctor's page: findings, cameras, and every image, in one file that stands alone."""

from __future__ import annotations

import base64
import importlib.resources
import io
import os
import pathlib
from typing import Any

import jinja2
import markupsafe
import numpy as np
from PIL import Image

from nerfjax.scenes.base import SPLITS, Scene
from nerfjax.scenes.doctor.diagnosis import Diagnosis
from nerfjax.scenes.doctor.findings import CODES, count
from nerfjax.scenes.doctor.plots import bars, camera_plot

MAX_THUMBNAILS = 400


def write_page(diagnosis: Diagnosis, path: str | os.PathLike) -> pathlib.Path:
    """Writes the page, which appears only when it is complete.

    Args:
      diagnosis: of a capture.
      path: the HTML file.

    Returns:
      The path.
    """
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    source = importlib.resources.files("nerfjax.scenes.doctor").joinpath("page.html.jinja").read_text()
    document = diagnosis.as_json()
    page = environment.from_string(source).render(
        name=diagnosis.scene.name if diagnosis.scene else pathlib.Path(diagnosis.source).name,
        document=document,
        counts=count(diagnosis.findings),
        findings=diagnosis.findings,
        meanings=CODES,
        tiles=_tiles(document["scene"]),
        facts=_facts(diagnosis, document["scene"]),
        plots=_plots(diagnosis.scene),
        charts=_charts(diagnosis),
        frames=_frames(diagnosis),
        splits=_legend(diagnosis.scene),
    )
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(path)
    return path


def _tiles(scene: dict[str, Any] | None) -> list[dict[str, str]]:
    if scene is None:
        return []
    sizes = scene["sizes"]
    size = f"{sizes[0]['width']}×{sizes[0]['height']}" if len(sizes) == 1 else f"{len(sizes)} sizes"
    fits = (scene["convention"] or {}).get("residuals_px") or {}
    tiles = [
        {"value": f"{scene['images']}", "label": "images with cameras"},
        {"value": f"{scene['registered']:.0%}", "label": "of the images are registered"},
        {"value": size, "label": "pixels" if len(sizes) == 1 else "of images"},
    ]
    if fits:
        tiles.append({"value": f"{fits['as read']:.1f} px", "label": "epipolar residual of matched points"})
    return tiles


def _facts(diagnosis: Diagnosis, scene: dict[str, Any] | None) -> list[tuple[str, str]]:
    if scene is None or diagnosis.scene is None:
        return []
    splits = ", ".join(f"{scene['splits'][split]} {split}" for split in SPLITS if scene["splits"][split])
    sizes = ", ".join(f"{s['images']} of {s['width']}×{s['height']}" for s in scene["sizes"][:6])
    bounds = f"near {scene['near']:.3g}, far {scene['far']:.4g}"
    box = np.asarray(scene["box"])
    low, high = (np.array2string(row, precision=2, separator=", ") for row in box)
    facts = [
        ("format", f"{diagnosis.format}" + (f" ({diagnosis.reason})" if diagnosis.reason else "")),
        ("splits", splits),
        ("sizes", sizes + (f" and {len(scene['sizes']) - 6} more" if len(scene["sizes"]) > 6 else "")),
        ("camera models", ", ".join(scene["camera_models"])),
        ("bounds", f"{bounds}; {'everything' if scene['bounded'] else 'full resolution'} within {low} to {high}"),
        ("sparse points", f"{scene['points']:,}" if scene["points"] is not None else "none"),
    ]
    cover = scene["coverage"]
    if cover is not None:
        low, high = cover["elevation_degrees"]
        least, middle, most = cover["distance"]
        facts.append(
            ("coverage", f"{cover['facing']}-facing; largest gap in azimuth {cover['azimuth_gap_degrees']:.0f}°; "
             f"elevations {low:.0f}° to {high:.0f}°; distances {least:.3g} to {most:.3g}, median {middle:.3g}")
        )  # fmt: skip
    convention = scene["convention"]
    if convention is not None:
        text = f"read with {'OpenCV' if convention['axes'] == 'opencv' else 'OpenGL'} axes"
        if convention["residuals_px"]:
            text += "; median epipolar residuals: " + ", ".join(
                f"{name} {value:.2f} px" for name, value in convention["residuals_px"].items()
            )
        facts.append(("axis convention", text))
    return facts


def _plots(scene: Scene | None) -> list[dict[str, Any]]:
    if scene is None:
        return []
    titles = {"top": "from above (x, y)", "side": "from the side (x, z)"}
    return [
        {"title": title, "svg": markupsafe.Markup(camera_plot(scene, view, scene.points))}
        for view, title in titles.items()
    ]


def _charts(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    if diagnosis.scene is None or not diagnosis.measures:
        return []
    rows = sorted(diagnosis.measures)
    names = [diagnosis.scene.frames[row].name for row in rows]
    charts = []
    for title, values, code, zero in (
        ("sharpness (variance of the Laplacian, square root)",
         [float(np.sqrt(diagnosis.measures[row].sharpness)) for row in rows], "blurred", True),
        ("exposure (stops, from the median)", [diagnosis.measures[row].exposure for row in rows], "exposure-jump",
         False),
    ):  # fmt: skip
        svg = bars(values, names, _named_in(diagnosis, code), zero=zero)
        charts += [{"title": title, "svg": markupsafe.Markup(svg)}] if svg else []
    return charts


def _named_in(diagnosis: Diagnosis, *codes: str) -> set[str]:
    """Frames that findings name; all of a list that is not shortened."""
    chosen = [f for f in diagnosis.findings if not codes or f.code in codes]
    names = {frame.name for frame in diagnosis.scene.frames} if diagnosis.scene else set()
    marked = {finding.frame for finding in chosen if finding.frame in names}
    for finding in chosen:
        words = set((finding.found or "").replace("(", " ").replace(")", " ").replace(",", " ").split())
        marked |= names & words
    return marked


def _frames(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    if diagnosis.scene is None:
        return []
    serious = [f.code for f in diagnosis.findings if f.severity != "info"]
    odd = _named_in(diagnosis, *(serious or [""]))
    usable = [m.exposure for m in diagnosis.measures.values() if m.error is None]
    middle = float(np.median(usable)) if usable else 0.0
    frames = []
    for row, measured in diagnosis.measures.items():
        frame = diagnosis.scene.frames[row]
        stops = round(measured.exposure - middle, 1)
        frames.append(
            {
                "name": frame.name,
                "split": frame.split,
                "odd": frame.name in odd,
                "source": _inline(measured.thumbnail) if measured.thumbnail is not None else None,
                "numbers": f"sharpness {np.sqrt(measured.sharpness):.3g}, {stops + 0.0:+.1f} stops"
                if measured.error is None
                else "cannot be read",
            }
        )
    frames.sort(key=lambda frame: not frame["odd"])
    return frames[:MAX_THUMBNAILS]


def _inline(thumbnail: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(thumbnail).save(buffer, "jpeg", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _legend(scene: Scene | None) -> list[str]:
    return [split for split in SPLITS if scene is not None and scene.indices(split)]
