"""Checks of focal lengths, principal points and lens distortion."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from nerfjax.geometry.cameras import unproject
from nerfjax.scenes.base import Scene, shorten
from nerfjax.scenes.doctor.findings import Finding

FOV_RANGE = (4.0, 150.0)  # degrees, of a perspective lens
GRID = 24


def check_intrinsics(scene: Scene) -> list[Finding]:
    """Looks at each distinct camera once."""
    groups = defaultdict(list)
    cameras = scene.cameras
    table = np.concatenate(
        [
            np.asarray(leaf, np.float64).reshape(len(scene.frames), -1)
            for leaf in (cameras.focal, cameras.center, cameras.distortion, cameras.size, cameras.model)
        ],
        axis=-1,
    )
    for row, values in enumerate(table):
        groups[values.tobytes()].append(row)
    by_kind: dict[tuple[str, str, str], list[tuple[int, str, str, str]]] = defaultdict(list)
    for rows in groups.values():
        for code, severity, problem, found, expected, fix in _check_one(scene, rows[0]):
            by_kind[code, severity, problem] += [(row, found, expected, fix) for row in rows]
    findings = []
    for (code, severity, problem), hits in by_kind.items():
        names = [scene.frames[row].name for row, *_ in sorted(hits)]
        _, found, expected, fix = min(hits)
        where = "all frames" if len(hits) == len(scene.frames) else f"{len(hits)} frames: {shorten(names)}"
        findings.append(
            Finding(code, severity, problem, scene.source, names[0], f"{found} ({where})", expected or None, fix)
        )
    return findings


def _check_one(scene: Scene, row: int) -> list[tuple[str, str, str, str, str, str]]:
    """(code, severity, problem, found, expected, fix) of one camera."""
    camera = scene.cameras[row : row + 1]
    model = scene.cameras.models[0] if len(scene.cameras.models) == 1 else _model_name(scene, row)
    focal, center, size = (np.asarray(leaf[0], np.float64) for leaf in (camera.focal, camera.center, camera.size))
    if model == "equirectangular":
        return []
    out = []
    offset = (center - size / 2) / size
    turned = np.abs(center - size[::-1] / 2) / size.max()
    text = f"({center[0]:.1f}, {center[1]:.1f}) in {size[0]:.0f}x{size[1]:.0f}"
    middle = f"near ({size[0] / 2:g}, {size[1] / 2:g})"
    if (turned < 0.02).all() and abs(size[0] / size[1] - 1) > 0.05:
        out.append(
            ("size-swapped", "warning", "The principal point is that of the image turned by 90°.", text, middle,
             "swap cx and cy (or width and height) where the capture was written")
        )  # fmt: skip
    elif (np.abs(offset) > 0.5).any():
        out.append(
            ("principal-point", "warning", "The principal point lies outside the image.", text, middle,
             "give the intrinsics of these images: those of an uncropped or larger one do not fit")
        )  # fmt: skip
    elif (np.abs(offset) > 0.15).any():
        out.append(
            ("principal-point", "warning", "The principal point is far from the middle of the image.", text, middle,
             "check cx and cy, unless the images were cropped")
        )  # fmt: skip
    if model in ("pinhole", "opencv"):
        fov = np.degrees(2 * np.arctan(0.5 * size / focal))
        if (fov < FOV_RANGE[0]).any() or (fov > FOV_RANGE[1]).any():
            out.append(
                ("focal-implausible", "warning", "The field of view is implausible.", f"{fov[0]:.1f}° x {fov[1]:.1f}°",
                 f"{FOV_RANGE[0]:g}° to {FOV_RANGE[1]:g}°", "focal lengths are in pixels, angles in radians")
            )  # fmt: skip
    ratio = focal[0] / focal[1]
    if not 0.8 < ratio < 1.25:
        out.append(
            ("focal-aspect", "warning", "The two focal lengths differ much.", f"fx {focal[0]:.1f}, fy {focal[1]:.1f}",
             "nearly equal, unless the images were stretched", "check fx and fy, and the sizes they belong to")
        )  # fmt: skip
    share = folded_share(scene, row)
    if share > 0:
        out.append(
            ("distortion-degenerate", "error" if share > 0.2 else "warning",
             "The lens distortion is not one-to-one over the image: pixels have no ray.",
             f"{share:.1%} of the pixels; coefficients {np.asarray(camera.distortion[0]).tolist()}",
             "a lens that maps each direction to one pixel", "calibrate with fewer coefficients, or undistort")
        )  # fmt: skip
    return out


def folded_share(scene: Scene, row: int) -> float:
    """Share of an image's pixels, its border included, that lie outside the valid field of its lens."""
    width, height = np.asarray(scene.cameras.size[row], np.float64)
    x, y = np.meshgrid(np.linspace(0.5, width - 0.5, GRID), np.linspace(0.5, height - 0.5, GRID))
    pixels = np.stack([x, y], axis=-1).reshape(-1, 2)
    camera = scene.cameras[np.full(len(pixels), row)]
    return float(1 - np.mean(unproject(camera, pixels, xp=np).converged))


def _model_name(scene: Scene, row: int) -> str:
    from nerfjax.types import CAMERA_MODELS

    return CAMERA_MODELS[int(scene.cameras.model[row])]
