"""The page of a comparison, its curves, and the crops that are worth looking at."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image
from prepared_runs import prepare_run

from nerfjax.errors import UserError
from nerfjax.runs.compare import compare
from nerfjax.runs.compare_figures import SERIES, Line, quality_figure
from nerfjax.runs.compare_report import write_page
from nerfjax.runs.crops import window_means, worst_crops
from nerfjax.runs.ranking import rank
from nerfjax.train.recorded import recorded_options

SOURCE = {"scene.source": "analytic:spheres?views=3&size=48&val=0&test=3"}


def two_runs(root):
    return [
        prepare_run(root / "<b>one", SOURCE, noise=0.03),
        prepare_run(root / "two", {**SOURCE, "sampler.name": "proposal"}, noise=0.03),
    ]


def evaluations(folders):
    return list(compare(folders, flat_config=recorded_options).evaluations.values())


def paint(folder, name: str, box: tuple[int, int, int, int], color=(255, 0, 0)) -> None:
    path = folder / "eval" / "100" / "predictions" / f"{name}.png"
    image = Image.open(path)
    image.paste(color, box)
    image.save(path)


def test_the_page_stands_alone_and_escapes_what_it_shows(tmp_path):
    comparison = compare(two_runs(tmp_path), flat_config=recorded_options)
    page = write_page(comparison, rank(comparison), tmp_path / "sub" / "page.html").read_text()
    assert "<script" not in page and "<b>one" not in page and "&lt;b&gt;one" in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert "http" not in re.sub(r'"http://www\.w3\.org/[^"]*"', "", page)
    assert page.count("<svg") == 4 and page.count("data:image/png") == 3 * (2 + 2 * 2)
    assert len(page) < 1_000_000
    assert all(word in page for word in ("Ranking", "Quality against cost", "Where they differ most", "another seed"))


def test_runs_without_a_result_have_a_page(tmp_path):
    folders = [prepare_run(tmp_path / name, measured=None, status="diverged") for name in "ab"]
    page = write_page(compare(folders, flat_config=recorded_options), None, tmp_path / "page.html").read_text()
    assert "has no result: diverged" in page and "data:image" not in page


def test_a_page_that_cannot_be_written_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_page(compare(two_runs(tmp_path), flat_config=recorded_options), None, tmp_path / "file" / "page.html")


def test_figures_take_their_colours_from_the_page():
    lines = [Line(m, [(1.0, 20.0), (2.0, 21.0)], [(2.0, 22.0)]) for m in range(len(SERIES) + 1)]
    svg = quality_figure(lines, x="steps", y="PSNR (dB)", title="toys")
    assert all(f"var(--series-{i})" in svg for i in range(len(SERIES)))
    assert not re.search(r"#(?!0000)[0-9a-f]{6}", svg.replace("#ffffff", ""))
    assert "stroke-dasharray" in svg  # the ninth method has the first one's colour


def test_the_crop_is_where_they_differ_most(tmp_path):
    folders = two_runs(tmp_path)
    paint(folders[1], "test__r_1", (20, 8, 36, 24))
    crops = worst_crops(evaluations(folders), count=2)
    assert [crop.view for crop in crops][0] == "test/r_1"
    left, top, right, bottom = crops[0].box
    assert (right - left, bottom - top) == (24, 24) and crops[0].spread > crops[1].spread
    assert left <= 20 and right >= 36 and top <= 8 and bottom >= 24
    assert crops[0].psnr[0] > crops[0].psnr[1] + 5
    assert crops[0].predictions[1].size == crops[0].target.size == crops[0].errors[0].size == (24, 24)


def test_pictures_that_are_missing_damaged_or_elsewhere_are_left_out(tmp_path):
    folders = two_runs(tmp_path)
    predictions = folders[0] / "eval" / "100" / "predictions"
    (predictions / "test__r_0.png").unlink()
    (predictions / "test__r_1.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    found = evaluations(folders)
    assert [crop.view for crop in worst_crops(found)] == ["test/r_2"]
    Image.new("RGB", (48, 48)).save(tmp_path / "secret.png")
    found[0].images["test/r_2"]["prediction"] = "../../../secret.png"
    assert worst_crops(found) == []


def test_other_sizes_are_no_crops(tmp_path):
    small = prepare_run(tmp_path / "small", {"scene.source": SOURCE["scene.source"], "scene.downscale": 2})
    assert worst_crops(evaluations([two_runs(tmp_path)[0], small])) == []


def test_window_means_are_means():
    values = np.random.default_rng(0).normal(size=(7, 9))
    slow = [[values[i : i + 4, j : j + 4].mean() for j in range(6)] for i in range(4)]
    np.testing.assert_allclose(window_means(values, 4), slow, atol=1e-12)
