"""Checks of near, far, the box, the sparse points, and how many reconstructions there are."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from nerfjax.scenes.base import Scene, shorten
from nerfjax.scenes.doctor.findings import Finding

BAD_REPROJECTION = 5.0  # pixels


def check_bounds(scene: Scene, points: np.ndarray | None) -> list[Finding]:
    """Near and far, and points in scene coordinates against them."""
    near, far = float(scene.geometry.near), float(scene.geometry.far)
    box = np.asarray(scene.geometry.box, np.float64)
    findings = []
    if not (np.isfinite([near, far]).all() and 0 <= near < far):
        findings.append(
            Finding(
                "near-far",
                "error",
                "Near is not less than far.",
                file=scene.source,
                found=f"near {near:g}, far {far:g}",
                expected="0 <= near < far",
                fix="correct the bounds",
            )  # fmt: skip
        )
    if not (np.isfinite(box).all() and (box[0] < box[1]).all()):
        findings.append(
            Finding("near-far", "error", "The scene's box is empty.", file=scene.source, found=str(box.tolist()))
        )
    if points is None or not len(points) or findings:
        return findings
    depth = _typical_depths(scene, points)
    outside = float(np.mean((depth < near) | (depth > far))) if len(depth) else 0.0
    text = f"{outside:.0%} of the seen points are nearer than {near:.3g} or farther than {far:.3g}"
    if scene.geometry.bounded:
        beyond = float(np.mean(((points < box[0]) | (points > box[1])).any(axis=-1)))
        if beyond > max(outside, 0.2):
            outside, text = beyond, f"{beyond:.0%} of the points are outside the box {np.round(box, 3).tolist()}"
    if outside > 0.1:
        findings.append(
            Finding(
                "points-outside",
                "warning",
                "Sparse points are outside the scene's bounds.",
                file=scene.source,
                found=text,
                expected="nearly all of them inside",
                fix="check near, far and the poses' scale",
            )  # fmt: skip
        )
    pose = np.asarray(scene.cameras.pose, np.float64)
    chosen = points[np.unique(np.linspace(0, len(points) - 1, 500).round().astype(int))]
    depth = np.einsum("ci,pci->pc", pose[:, :, 2], chosen[:, None] - pose[None, :, :, 3])
    blind = np.flatnonzero((depth < 0).mean(axis=0) < 0.02)  # cameras look along -z
    if len(blind) > 0.1 * len(scene.frames):
        findings.append(
            Finding(
                "points-behind",
                "warning",
                f"{len(blind)} cameras have nearly all sparse points behind them.",
                file=scene.source,
                frame=scene.frames[int(blind[0])].name,
                found=f"{float((depth >= 0).mean()):.0%} of the points are behind a camera on average",
                expected="points in front",
                fix="check the axis convention of the poses and of the points",
            )  # fmt: skip
        )
    return findings


def _typical_depths(scene: Scene, points: np.ndarray) -> np.ndarray:
    """Distances of the points that cameras image."""
    from nerfjax.geometry.cameras import inside_image, project

    rows = np.unique(np.linspace(0, len(scene.frames) - 1, 30).round().astype(int))
    points = points[np.unique(np.linspace(0, len(points) - 1, 500).round().astype(int))]
    cameras = scene.cameras[np.repeat(rows, len(points))]
    projection = project(cameras, np.tile(points, (len(rows), 1)), xp=np)
    return projection.distance[projection.valid & inside_image(cameras, projection.pixels, xp=np)]


def check_reprojection(scene: Scene) -> list[Finding]:
    """Whether a reconstruction explains its own observations, as a whole and in each image."""
    median = scene.provenance.get("reprojection_error_px")
    odd = scene.provenance.get("reprojection_outliers_px") or {}
    findings = []
    if median is not None and median > BAD_REPROJECTION:
        findings.append(
            Finding(
                "reprojection-high", "warning", "The reconstruction's points miss their own observations.",
                file=scene.source, expected=f"below {BAD_REPROJECTION:g}",
                found=f"{median:.1f} px in the median" if median < 1e4 else "most are behind their cameras",
                fix="check that cameras, images and points3D are of one reconstruction; reconstruct again",
            )
        )  # fmt: skip
    if odd:
        names = [f"{name}: " + (f"{px:.0f} px" if px < 1e4 else "behind its points") for name, px in odd.items()]
        findings.append(
            Finding(
                "reprojection-high", "warning",
                f"{len(odd)} of {len(scene.frames)} images miss their own observations by far more than the rest.",
                file=scene.source, frame=next(iter(odd)), found=shorten(names), expected=f"{median or 0:.2g} px",
                fix="their poses or lenses are wrong: leave them out, or reconstruct again",
            )
        )  # fmt: skip
    return findings


def check_models(source: str) -> list[Finding]:
    """Several COLMAP reconstructions below the capture."""
    root = Path(source)
    root = root if root.is_dir() else root.parent
    sizes = {}
    for folder in ("sparse", "colmap/sparse", "distorted/sparse"):
        for path in sorted((root / folder).glob("*/images.*")) if (root / folder).is_dir() else ():
            count = _registered(path)
            if count is not None:
                sizes.setdefault(path.parent.relative_to(root).as_posix(), count)
    if len(sizes) < 2:
        return []
    text = ", ".join(f"{name}: {count} images" for name, count in sizes.items())
    return [
        Finding(
            "several-models",
            "warning",
            f"The capture holds {len(sizes)} reconstructions that do not share a frame.",
            file=source,
            found=text,
            expected="one",
            fix="merge them (colmap model_merger) or take more photos between",
        )  # fmt: skip
    ]


def _registered(path: Path) -> int | None:
    """Number of registered images in images.bin or images.txt; None where it cannot be told."""
    try:
        if path.suffix == ".bin":
            with open(path, "rb") as file:
                return struct.unpack("<Q", file.read(8))[0]
        if path.suffix == ".txt":
            # The line after each image holds its points, and may be empty.
            lines = [line for line in path.read_text(errors="replace").splitlines() if not line.startswith("#")]
            return (len(lines) + 1) // 2
    except (OSError, struct.error):
        pass
    return None
