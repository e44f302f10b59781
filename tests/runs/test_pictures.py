"""Error and depth maps."""

from __future__ import annotations

import numpy as np

from nerfjax.runs.pictures import depth_map, error_map


def test_error_maps_share_one_monotonic_scale():
    target = np.zeros((1, 5, 3), np.float32)
    prediction = np.broadcast_to(np.array([0, 0.01, 0.05, 0.2, 0.6], np.float32)[None, :, None], (1, 5, 3))
    luminance = error_map(prediction, target, np.ones((1, 5), bool)).astype(int).sum(axis=-1)[0]
    assert np.all(np.diff(luminance) > 0)
    alone = error_map(prediction[:, :2], target[:, :2], np.ones((1, 2), bool)).astype(int).sum(axis=-1)[0]
    assert np.array_equal(alone, luminance[:2])


def test_depth_maps_are_bright_where_near_and_grey_where_empty():
    depth = np.array([[1.0, 2.0, 8.0, 5.0]])
    picture, (near, far) = depth_map(depth, np.array([[1.0, 1.0, 1.0, 0.0]]))
    assert picture[0, 0].sum() > picture[0, 1].sum() > picture[0, 2].sum()
    assert np.ptp(picture[0, 3].astype(int)) == 0
    assert 1.0 <= near < far <= 8.0
