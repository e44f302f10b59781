"""Points that two photographs share: corners, patch descriptors, and matches that one epipolar geometry explains.

Multi-scale corners with upright patch descriptors, normalised for brightness and contrast (after Brown, Szeliski and
Winder 2005, "Multi-image matching using multi-scale oriented patches"; upright, since neighbouring views hardly roll).
All in NumPy: a few tenths of a second a pair at ``SIDE`` pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SIDE = 640  # longer side of the images that are matched, pixels
SCALES = (1.0, 1.5, 2.25)
CORNERS = 450  # at most, a scale
_PATCH, _STEP, _MARGIN = 8, 4, 20
RATIO = 0.8  # of the distances to the best and to the second best match
MIN_INLIERS = 16


class Features(NamedTuple):
    """Corners: ``points`` [F, 2] (x, y) in pixels of the given image, ``descriptors`` [F, 64] of unit length."""

    points: np.ndarray
    descriptors: np.ndarray


def features(grey: np.ndarray) -> Features:
    """Finds corners and describes them.

    Args:
      grey: [H, W] float32 in [0, 1].
    """
    points, descriptors = [], []
    for scale in SCALES:
        level = _smaller(grey, scale)
        if min(level.shape) < 2 * _MARGIN + 8:
            break
        corners = _corners(level)
        if len(corners):
            descriptors.append(_describe(_blur(level, 2.0), corners))
            ratio = np.array([grey.shape[1] / level.shape[1], grey.shape[0] / level.shape[0]])
            points.append((corners + 0.5) * ratio)
    if not points:
        return Features(np.zeros((0, 2)), np.zeros((0, _PATCH**2), np.float32))
    return Features(np.concatenate(points), np.concatenate(descriptors))


def match(first: Features, second: Features) -> np.ndarray:
    """Returns [M, 2] indices of mutual nearest neighbours that pass the ratio test."""
    if min(len(first.points), len(second.points)) < 3:
        return np.zeros((0, 2), np.int64)
    similarity = first.descriptors @ second.descriptors.T
    best = similarity.argmax(axis=1)
    rows = np.arange(len(best))
    top = similarity[rows, best]
    # The second best must be another place, not the same corner on another scale.
    places = second.points.astype(np.float32)
    size = np.square(places).sum(axis=-1)
    near = size[best, None] + size[None] - 2 * places[best] @ places.T < 12.0**2
    others = np.where(near, np.float32(-1), similarity).max(axis=1)
    distance, other = np.sqrt(np.maximum(2 - 2 * top, 0)), np.sqrt(np.maximum(2 - 2 * others, 1e-12))
    mutual = similarity.argmax(axis=0)[best] == rows
    good = mutual & (distance < RATIO * other) & (top > 0.5)
    return np.stack([rows[good], best[good]], axis=-1)


def consistent(first: np.ndarray, second: np.ndarray, tolerance: float, *, seed: int = 0) -> np.ndarray:
    """Says which matches one epipolar geometry explains (RANSAC over the linear eight-point fit).

    Args:
      first, second: [M, 3] unit directions in either camera's axes.
      tolerance: angle to the epipolar plane, radians.
      seed: of the draws.

    Returns:
      [M] bool; all False where fewer than ``MIN_INLIERS`` agree.
    """
    none = np.zeros(len(first), bool)
    if len(first) < MIN_INLIERS:
        return none
    draws = np.random.default_rng(seed).random((200, len(first))).argpartition(8, axis=1)[:, :8]
    products = (second[:, :, None] * first[:, None, :]).reshape(len(first), 9)
    matrices = np.linalg.svd(products[draws])[2][:, -1].reshape(-1, 3, 3)
    angles = epipolar_angle(matrices, first, second)
    best = angles[np.argmax((angles < tolerance).sum(axis=-1))] < tolerance
    if best.sum() >= MIN_INLIERS:
        refined = np.linalg.svd(products[best])[2][-1].reshape(3, 3)
        inliers = epipolar_angle(refined, first, second) < tolerance
        best = inliers if inliers.sum() >= best.sum() else best
    return best if best.sum() >= MIN_INLIERS else none


def epipolar_angle(essential: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Larger of the angles between a direction and the epipolar plane of the other one, radians.

    Args:
      essential: [..., 3, 3].
      first, second: [M, 3] unit directions.

    Returns:
      [..., M].
    """
    # Not matmul: BLAS would start threads for hundreds of 3x3 products.
    right, left = np.einsum("...ij,mj->...im", essential, first), np.einsum("...ji,mj->...im", essential, second)
    product = np.abs((right * second.T).sum(axis=-2))
    size = np.minimum(np.square(right).sum(axis=-2), np.square(left).sum(axis=-2))
    return product / np.sqrt(np.maximum(size, 1e-24))


def _corners(level: np.ndarray) -> np.ndarray:
    """[F, 2] (x, y) of the strongest corners, spread over the image, to a fraction of a pixel."""
    dy, dx = np.gradient(_blur(level, 1.0))
    xx, yy, xy = (_blur(product, 1.5) for product in (dx * dx, dy * dy, dx * dy))
    response = (xx * yy - xy * xy) / (xx + yy + 1e-8)
    m = _MARGIN
    center = response[m:-m, m:-m]
    largest = np.ones(center.shape, bool)
    for i in (-1, 0, 1):
        for j in (-1, 0, 1):
            if i or j:
                largest &= center >= response[m + i : response.shape[0] - m + i, m + j : response.shape[1] - m + j]
    rows, columns = np.nonzero(largest & (center > 1e-6))
    strength = center[rows, columns]
    order = np.argsort(-strength)
    rows, columns = rows[order] + m, columns[order] + m
    # At most a few per cell, so that one textured region does not take them all.
    cells = 8
    cell = (rows * cells // level.shape[0]) * cells + columns * cells // level.shape[1]
    rank = np.zeros(len(cell), np.int64)
    for value in np.unique(cell):
        rank[cell == value] = np.arange(np.sum(cell == value))
    kept = rank < max(2, 2 * CORNERS // cells**2)
    rows, columns = rows[kept][:CORNERS], columns[kept][:CORNERS]

    def offset(before, here, after):
        curvature = before - 2 * here + after
        return np.clip(0.5 * (before - after) / np.where(curvature < -1e-12, curvature, -1e12), -0.5, 0.5)

    here = response[rows, columns]
    x = columns + offset(response[rows, columns - 1], here, response[rows, columns + 1])
    y = rows + offset(response[rows - 1, columns], here, response[rows + 1, columns])
    return np.stack([x, y], axis=-1)


def _describe(level: np.ndarray, corners: np.ndarray) -> np.ndarray:
    grid = (np.arange(_PATCH) - (_PATCH - 1) / 2) * _STEP
    x = corners[:, 0, None, None] + grid[None, None, :]
    y = corners[:, 1, None, None] + grid[None, :, None]
    x0, y0 = np.floor(x).astype(int), np.floor(y).astype(int)
    fx, fy = x - x0, y - y0
    values = (level[y0, x0] * (1 - fx) + level[y0, x0 + 1] * fx) * (1 - fy)
    values = values + (level[y0 + 1, x0] * (1 - fx) + level[y0 + 1, x0 + 1] * fx) * fy
    patches = values.reshape(len(corners), -1)
    patches = patches - patches.mean(axis=1, keepdims=True)
    return (patches / np.maximum(np.linalg.norm(patches, axis=1, keepdims=True), 1e-6)).astype(np.float32)


def _smaller(grey: np.ndarray, scale: float) -> np.ndarray:
    if scale == 1.0:
        return grey
    from PIL import Image

    size = (max(1, round(grey.shape[1] / scale)), max(1, round(grey.shape[0] / scale)))
    return np.asarray(Image.fromarray(grey).resize(size, Image.Resampling.BOX))


def _blur(values: np.ndarray, sigma: float) -> np.ndarray:
    reach = int(np.ceil(2.5 * sigma))
    kernel = np.exp(-0.5 * np.square(np.arange(-reach, reach + 1) / sigma)).astype(np.float32)
    kernel /= kernel.sum()
    for axis in (0, 1):
        padded = np.pad(values, [(reach, reach) if a == axis else (0, 0) for a in (0, 1)], mode="edge")
        size = values.shape[axis]
        values = sum(
            weight * (padded[i : i + size] if axis == 0 else padded[:, i : i + size]) for i, weight in enumerate(kernel)
        )
    return values
