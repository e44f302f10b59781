"""Camera frustums and sparse points from above and from the side, as inline SVG whose colours follow the page."""

from __future__ import annotations

import html

import numpy as np

from nerfjax.geometry.cameras import unproject
from nerfjax.scenes.base import Scene

SIDE = 460
MAX_POINTS = 2500
SPLIT_COLORS = {"train": "--first", "val": "--third", "test": "--second"}
VIEWS = {"top": (0, 1), "side": (0, 2)}


def camera_plot(scene: Scene, view: str, points: np.ndarray | None = None) -> str:
    """Draws one view.

    Args:
      scene: as read.
      view: "top" (x right, y up) or "side" (x right, z up), scene coordinates.
      points: [P, 3] scene coordinates.

    Returns:
      An ``<svg>`` element.
    """
    axes = list(VIEWS[view])
    origins = np.asarray(scene.cameras.pose[:, :, 3], np.float64)
    center, reach = _extent(origins, points)
    scale = 0.5 * SIDE / reach

    def place(values: np.ndarray) -> np.ndarray:
        flat = (values[..., axes] - center[axes]) * scale
        return np.stack([0.5 * SIDE + flat[..., 0], 0.5 * SIDE - flat[..., 1]], axis=-1)

    parts = [_grid(center[axes], reach)]
    if points is not None and len(points):
        chosen = points[np.unique(np.linspace(0, len(points) - 1, MAX_POINTS).round().astype(int))]
        dots = place(chosen)
        dots = dots[((dots > 0) & (dots < SIDE)).all(axis=-1)]
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in dots)
        parts.append(f'<path d="{path}" stroke="var(--soft)" stroke-width="1.6" stroke-linecap="round" opacity=".55"/>')
    if scene.geometry.bounded:
        low, high = place(np.asarray(scene.geometry.box, np.float64))
        parts.append(
            f'<rect x="{low[0]:.1f}" y="{high[1]:.1f}" width="{high[0] - low[0]:.1f}" '
            f'height="{low[1] - high[1]:.1f}" fill="none" stroke="var(--soft)" stroke-dasharray="4 4"/>'
        )
    corners = place(_frustums(scene, 0.1 * reach))
    tips = place(origins)
    for row in np.argsort(-origins[:, 3 - axes[1]] if view == "side" else origins[:, 2]):
        parts.append(_frustum(scene.frames[row].name, scene.frames[row].split, tips[row], corners[row]))
    label = "from above" if view == "top" else "from the side"
    return (
        f'<svg viewBox="0 0 {SIDE} {SIDE}" role="img" aria-label="cameras {label}" font-size="11">' + "".join(parts)
    ) + "</svg>"


def bars(values: list[float], names: list[str], odd: set[str], *, zero: bool) -> str:
    """Draws one bar a frame, in the scene's order; those of ``odd`` frames stand out.

    Args:
      values: not finite where unknown.
      names: of the frames.
      odd: names of the frames to mark.
      zero: whether bars begin at 0 (else at the median, up and down).
    """
    width, height = 460, 110
    numbers = np.asarray(values, np.float64)
    known = numbers[np.isfinite(numbers)]
    if not len(known):
        return ""
    base = 0.0 if zero else float(np.median(known))
    low, high = (min(base, float(known.min())), max(base, float(known.max())))
    span = max(high - low, 1e-9)
    step = width / len(numbers)
    level = (high - base) / span * (height - 8) + 4
    parts = []
    for index, (value, name) in enumerate(zip(numbers, names, strict=True)):
        if not np.isfinite(value):
            continue
        top = (high - value) / span * (height - 8) + 4
        color = "--bad" if name in odd else "--first"
        parts.append(
            f'<rect x="{index * step:.2f}" y="{min(top, level):.1f}" width="{max(step * 0.8, 0.6):.2f}" '
            f'height="{max(abs(top - level), 0.8):.1f}" fill="var({color})">'
            f"<title>{html.escape(name)}: {value:.4g}</title></rect>"
        )
    line = f'<line x1="0" x2="{width}" y1="{level:.1f}" y2="{level:.1f}" stroke="var(--line)"/>'
    return f'<svg viewBox="0 0 {width} {height}" role="img">{line}{"".join(parts)}</svg>'


def _extent(origins: np.ndarray, points: np.ndarray | None) -> tuple[np.ndarray, float]:
    """Centre and half side of a square that shows nearly all cameras; far ones are left outside."""
    low, high = np.quantile(origins, [0.02, 0.98], axis=0)
    reach = float((high - low).max()) / 2
    # The subject stands where normalisation put it, at the origin.
    if np.abs(np.concatenate([low, high])).max() < 6 * reach:
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    center = (low + high) / 2
    reach = float((high - low).max()) / 2
    if points is not None and len(points):
        below, above = np.quantile(points, [0.08, 0.92], axis=0)
        low = np.minimum(low, np.maximum(below, center - 2 * reach))
        high = np.maximum(high, np.minimum(above, center + 2 * reach))
        center, reach = (low + high) / 2, float((high - low).max()) / 2
    return center, max(1.2 * reach, 1e-9)


def _frustums(scene: Scene, size: float) -> np.ndarray:
    """[C, 4, 3] corners of the image planes ``size`` before each camera."""
    cameras = scene.cameras
    unit = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float64)
    pixels = unit[None] * (np.asarray(cameras.size, np.float64)[:, None] - 1) + 0.5
    rows = np.repeat(np.arange(len(scene.frames)), 4)
    rays = unproject(cameras[rows], pixels.reshape(-1, 2), xp=np)
    directions = np.clip(rays.directions / np.maximum(-rays.directions[:, 2:], 0.35), -2, 2)
    pose = np.asarray(cameras.pose, np.float64)[rows]
    world = np.einsum("nij,nj->ni", pose[:, :, :3], size * directions) + pose[:, :, 3]
    return world.reshape(-1, 4, 3)


def _frustum(name: str, split: str, tip: np.ndarray, corners: np.ndarray) -> str:
    if not ((tip > -20) & (tip < SIDE + 20)).all():
        return ""
    sides = "".join(f"M{tip[0]:.1f} {tip[1]:.1f}L{x:.1f} {y:.1f}" for x, y in corners)
    face = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    color = f"var({SPLIT_COLORS[split]})"
    return (
        f'<g stroke="{color}" stroke-width=".8" fill="{color}"><title>{html.escape(name)} ({split})</title>'
        f'<path d="{sides}" fill="none" opacity=".7"/><polygon points="{face}" fill-opacity=".12"/>'
        f'<circle cx="{tip[0]:.1f}" cy="{tip[1]:.1f}" r="2" stroke="none"/></g>'
    )


def _grid(center: np.ndarray, reach: float) -> str:
    """Lines at round coordinates, labelled."""
    step = 10.0 ** np.floor(np.log10(reach))
    step = step if reach / step < 3 else 2 * step if reach / step < 6 else 5 * step
    scale = 0.5 * SIDE / reach
    parts = []
    for axis in (0, 1):
        first = np.ceil((center[axis] - reach) / step)
        for k in range(int(first), int(np.floor((center[axis] + reach) / step)) + 1):
            at = 0.5 * SIDE + (k * step - center[axis]) * scale * (1 if axis == 0 else -1)
            ends = f'x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{SIDE}"' if axis == 0 else (
                f'x1="0" x2="{SIDE}" y1="{at:.1f}" y2="{at:.1f}"')  # fmt: skip
            parts.append(f'<line {ends} stroke="var(--line)" stroke-width="{1.4 if k == 0 else 0.6}"/>')
            x, y = (at + 3, SIDE - 4) if axis == 0 else (3, at - 3)
            parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="var(--soft)">{k * step:g}</text>')
    return "".join(parts)
