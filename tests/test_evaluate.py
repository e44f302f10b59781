"""The numbers of an evaluation are those of its pictures, under the protocol that it names."""

from __future__ import annotations

import json
import pathlib
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import nerfjax.evaluate as evaluation
from nerfjax.errors import UserError
from nerfjax.geometry.cameras import cameras_from
from nerfjax.renderer import RenderedImage
from nerfjax.scenes.base import Frame
from nerfjax.scenes.images import ImageReference

SIZE = (20, 16)
SCHEMA = pathlib.Path(evaluation.__file__).parent / "schemas" / "eval.schema.json"


def frame(name: str, image: np.ndarray, mask: np.ndarray | None = None) -> Frame:
    size = (image.shape[1], image.shape[0])
    reference = ImageReference(None, size, loader=lambda: image)
    return Frame(name, reference, "test", None if mask is None else ImageReference(None, size, loader=lambda: mask))


def photo(seed: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (SIZE[1], SIZE[0], channels), dtype=np.uint8)


def cameras(count: int):
    return cameras_from(np.tile(np.eye(4), (count, 1, 1)), 20.0, size=SIZE)


def rendered(color: np.ndarray) -> RenderedImage:
    depth = np.linspace(1, 4, color.shape[0] * color.shape[1], dtype=np.float32).reshape(color.shape[:2])
    return RenderedImage(color.astype(np.float32), np.ones(color.shape[:2], np.float32), depth)


def run_evaluate(colors: list[np.ndarray], frames: list[Frame], out: pathlib.Path, **options) -> dict:
    waiting = iter(colors)
    return evaluation.evaluate(lambda camera: rendered(next(waiting)), frames, cameras(len(frames)), out=out, **options)


def check_schema(value, schema: dict, path: str = "document") -> None:
    """The part of JSON Schema that our schemas use."""
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int}
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), f"{path}: {value!r} is no {schema['type']}"
    if "enum" in schema:
        assert value in schema["enum"], path
    if schema.get("type") in ("number", "integer"):
        assert schema.get("minimum", value) <= value <= schema.get("maximum", value), f"{path}: {value}"
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        assert set(schema.get("required", ())) <= set(value), path
        assert others is not False or set(value) <= set(properties), f"{path}: {set(value) - set(properties)}"
        for key, item in value.items():
            rule = properties.get(key, others if isinstance(others, dict) else {})
            check_schema(item, rule, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_schema(item, schema.get("items", {}), f"{path}[{index}]")


def test_b90_the_saved_pictures_give_the_same_psnr(tmp_path):
    targets = [photo(0), photo(1)]
    colors = [
        np.clip(target / 255 + np.random.default_rng(9).normal(0, 0.05, target.shape), -0.1, 1.1) for target in targets
    ]
    frames = [frame("a.png", targets[0]), frame("deep/b.jpg", targets[1])]
    result = run_evaluate(colors, frames, tmp_path / "7", run="fox", step=7)
    for image, target in zip(result["images"], targets, strict=True):
        saved = np.asarray(Image.open(tmp_path / "7" / image["prediction"]), np.float64) / 255
        expected = -10 * np.log10(np.mean((saved - target / 255) ** 2))
        assert image["psnr"] == pytest.approx(expected, abs=1e-3)
        assert np.array_equal(np.asarray(Image.open(tmp_path / "7" / image["target"])), target)
    assert result["mean"]["psnr"] == pytest.approx(np.mean([image["psnr"] for image in result["images"]]))
    assert result["n"] == 2


def test_b94_the_document_with_its_number_and_list_keeps_to_the_schema(tmp_path):
    result = run_evaluate([photo(1) / 255], [frame("a.png", photo(0))], tmp_path / "7", run="fox", step=7)
    check_schema(result, json.loads(SCHEMA.read_text()))
    assert json.loads((tmp_path / "7" / "metrics.json").read_text()) == result
    with pytest.raises(AssertionError):
        check_schema({**result, "n": "2"}, json.loads(SCHEMA.read_text()))


def test_a_perfect_picture_is_a_number_in_json(tmp_path):
    result = run_evaluate([photo(0) / 255], [frame("a.png", photo(0))], tmp_path / "7")
    assert result["images"][0]["psnr"] == pytest.approx(120.0)
    assert result["images"][0]["ssim"] == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("background", [0.0, 0.5, 1.0])
def test_b48_alpha_is_composited_over_the_background_and_hidden_colours_do_not_count(tmp_path, background):
    image = photo(0, channels=4)
    alpha = image[..., 3:] / 255
    color = image[..., :3] / 255 * alpha + background * (1 - alpha)
    result = run_evaluate([color], [frame("a.png", image)], tmp_path / "7", background=background)
    assert result["images"][0]["psnr"] > 50  # rounding to 8 bits is all that differs
    image[..., 3] = 0
    result = run_evaluate(
        [np.full(color.shape, background)], [frame("a.png", image)], tmp_path / "7", background=background
    )
    assert result["images"][0]["psnr"] > 50
    assert result["protocol"]["background"] == {0.0: "black", 0.5: "grey 0.5", 1.0: "white"}[background]


def test_16_bit_images_keep_their_range(tmp_path):
    deep = photo(0).astype(np.uint16) * 257
    assert run_evaluate([photo(0) / 255], [frame("a.png", deep)], tmp_path / "7")["mean"]["psnr"] > 60


def test_masked_pixels_do_not_count(tmp_path):
    mask = np.full((SIZE[1], SIZE[0], 3), 255, np.uint8)
    mask[:, :5] = 0
    color = photo(0) / 255
    color[:, :5] = 0.5
    result = run_evaluate([color], [frame("a.png", photo(0), mask)], tmp_path / "7")
    assert result["images"][0]["psnr"] == pytest.approx(120.0)
    assert result["images"][0]["ssim"] == pytest.approx(1.0, abs=1e-5)
    assert result["images"][0]["valid"] == pytest.approx(0.75)
    with pytest.raises(UserError, match="mask"):
        run_evaluate([color], [frame("a.png", photo(0), np.zeros_like(mask))], tmp_path / "8")


def test_a_new_evaluation_replaces_the_old_and_a_failed_one_does_not(tmp_path):
    run_evaluate([photo(1) / 255, photo(1) / 255], [frame("a.png", photo(0)), frame("b.png", photo(0))], tmp_path / "7")
    run_evaluate([photo(1) / 255], [frame("a.png", photo(0))], tmp_path / "7")
    assert not (tmp_path / "7" / "predictions" / "b.png").exists()
    before = (tmp_path / "7" / "metrics.json").read_text()
    with pytest.raises(StopIteration):
        run_evaluate([], [frame("a.png", photo(0))], tmp_path / "7")
    assert (tmp_path / "7" / "metrics.json").read_text() == before


def test_picture_names_are_distinct():
    names = ["a/1.png", "a__1.jpg", "b/1.png", "../c.v2", "c.v2"]
    stems = evaluation.picture_names(names)
    assert len(set(stems)) == len(names)
    assert all("/" not in stem and stem != ".." for stem in stems)
    assert stems[0] == "a__1" and stems[3] == "c.v2"


@pytest.mark.parametrize(
    ("name", "implied", "level"),
    [
        ("white", "black", 1.0),
        ("black", None, 0.0),
        ("random", "black", 0.25),
        ("learned", "black", 0.0),
        ("learned", None, 1.0),
    ],
)
def test_b49_ground_truth_lies_on_the_background_that_is_rendered(name, implied, level):
    config = {"background": {"name": name, "random": {"shown": 0.25}}}
    assert evaluation.background_level(config, implied) == level


class FakeScene:
    """A capture with test frames only."""

    source, background = "there", None

    def __init__(self, frames):
        self.frames = frames

    def indices(self, split):
        return tuple(range(len(self.frames))) if split == "test" else ()

    def subset(self, split):
        rows = self.indices(split)
        return SimpleNamespace(frames=[self.frames[i] for i in rows], cameras=cameras(len(rows) or 1)).__dict__.values()


def fake_run(workdir, frames, color):
    config = {"background": {"name": "white"}}
    experiment = SimpleNamespace(
        scene=FakeScene(frames), config=config, render_image=lambda state, camera: rendered(color)
    )
    return SimpleNamespace(
        workdir=workdir, step=12, config=config, experiment=experiment, render_view=lambda camera: rendered(color)
    )


def test_a_run_is_evaluated_into_its_folder(tmp_path):
    run = fake_run(tmp_path / "fox", [frame("a.png", photo(0))], photo(1) / 255)
    result = evaluation.evaluate_run(run)
    assert (result["run"], result["step"], result["split"]) == ("fox", 12, "test")
    assert (tmp_path / "fox" / "eval" / "12" / "metrics.json").exists()
    with pytest.raises(UserError, match="test 1"):
        evaluation.evaluate_run(run, split="val")


def test_scores_in_the_middle_of_training_are_those_of_the_evaluation(tmp_path):
    run = fake_run(tmp_path / "fox", [frame("a.png", photo(0)), frame("b.png", photo(2))], photo(1) / 255)
    scores = evaluation.score_views(run.experiment, None)
    assert scores["eval/psnr"] == pytest.approx(evaluation.evaluate_run(run)["mean"]["psnr"])
    assert evaluation.score_views(fake_run(tmp_path, [], photo(1) / 255).experiment, None) == {}


def test_the_table_is_worst_first(tmp_path, capsys):
    images = [dict(name=f"view{i}", psnr=20.0 + (i * 7) % 40, ssim=0.5) for i in range(40)]
    evaluation.print_table(dict(run="fox", step=1, split="test", n=40, images=images, mean=dict(psnr=39.5, ssim=0.5)))
    shown = [float(line.split("│")[2]) for line in capsys.readouterr().out.splitlines() if "view" in line]
    assert shown == sorted(shown)
    assert shown[0] == 20.0 and shown[-1] == 59.0 and len(shown) < 20
