"""Run folders as training and evaluation leave them, made in a moment: the field is a noisy ground truth."""

from __future__ import annotations

import functools
import importlib.resources
import json
import pathlib
import zlib

import numpy as np

from nerfjax import load_config
from nerfjax.evaluate import background_level, evaluate, target_image
from nerfjax.renderer import RenderedImage
from nerfjax.runs.manifest import code_version, record_evaluation, seal, write_manifest
from nerfjax.scenes import read_scene
from nerfjax.train.configuration import config_hash, config_to_json

SOURCE = "analytic:spheres?views=3&size=24&val=0&test=3"
SMALL = {
    "train.steps": 100,
    "train.batch_rays": 64,
    "sampler.name": "stratified",
    "parallel.devices": 1,
}
scene_of = functools.cache(lambda source, downscale: read_scene(source, downscale=downscale))
package = functools.cache(code_version)


def prepare_run(
    folder: pathlib.Path,
    overrides: dict | None = None,
    *,
    noise: float = 0.1,
    status: str | None = "done",
    measured: int | None = -1,
    split: str = "test",
    **more,
) -> pathlib.Path:
    """Writes the folder of a run.

    Args:
      folder: the run folder.
      overrides: values of the config that are not ``SMALL``'s.
      noise: standard deviation of the error in the rendered images.
      status: how the run ended; None: it is not sealed.
      measured: step of the evaluation; -1 is the end, None is no evaluation.
      split: the split that is evaluated.
      **more: entries of the manifest instead of the right ones.
    """
    config = load_config("demo", {**SMALL, "scene.source": SOURCE, **(overrides or {})})
    scene = scene_of(config.scene.source, config.scene.downscale)
    entries = dict(
        config=config_to_json(config), config_hash=config_hash(config), scene_fingerprint=scene.fingerprint(),
        split=scene.split_names(), precision=config.precision, seeds={"run": config.train.seed}, code=package(),
        render={"background": scene.background},
        scene={"name": scene.name, "format": scene.format, "cameras": scene.camera_digest},
    )  # fmt: skip
    write_manifest(folder, **{**entries, **more})
    steps = config.train.steps
    lines = [
        {"step": step, "loss": 1 / step, "psnr": 10.0, "seconds": 0.1 * step, "samples_per_ray": 32.0,
         "proposal_samples_per_ray": 0.0, "eval/psnr": 20 + step / steps}
        for step in range(10, steps + 1, 10)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if status is not None:
        seal(folder, status=status, step=steps if status == "done" else steps // 2, seconds=0.1 * steps)
    if measured is not None:
        step = steps if measured < 0 else measured
        background = background_level(config, scene.background)
        frames, cameras = scene.subset(split)
        renders = iter(noisy(frames, background, noise, seed=config.train.seed, name=folder.name))
        name = str(step) if split == "test" else f"{step}-{split}"
        result = evaluate(
            lambda camera: next(renders), frames, cameras, out=folder / "eval" / name, run=folder.name, step=step,
            split=split, background=background,
        )  # fmt: skip
        record_evaluation(folder, result)
    return folder


def noisy(frames, background: float, noise: float, *, seed: int, name: str):
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    spread = noise * np.exp(0.03 * random.normal())  # as seeds differ
    for frame in frames:
        target = target_image(frame, background)[0]
        color = np.clip(target + spread * random.normal(size=target.shape), 0, 1).astype(np.float32)
        yield RenderedImage(color, np.ones(target.shape[:2]), np.ones(target.shape[:2]))


TYPES = {
    **{"object": dict, "array": list, "string": str, "number": (int, float), "integer": int},
    **{"boolean": bool, "null": type(None)},
}


def violations(value, schema: dict, where: str = "$") -> list[str]:
    """What of JSON Schema the schemas of manifest and compare use, checked."""
    kinds = schema.get("type", list(TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not any(isinstance(value, TYPES[k]) and (k == "boolean" or not isinstance(value, bool)) for k in kinds):
        return [f"{where} is {type(value).__name__}, not {kinds}"]
    if value not in schema.get("enum", [value]):
        return [f"{where} is {value!r}"]
    found = []
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties", {})
        found += [f"{where} lacks {key}" for key in schema.get("required", ()) if key not in value]
        for key, item in value.items():
            rule = known.get(key, more)
            found += [f"{where} has {key}"] if rule is False else violations(item, rule, f"{where}.{key}")
    if isinstance(value, list):
        found += [line for item in value for line in violations(item, schema.get("items", {}), f"{where}[]")]
    if isinstance(value, int | float) and not isinstance(value, bool):
        in_range = schema.get("minimum", value) <= value <= schema.get("maximum", value)
        found += [] if in_range else [f"{where} is {value}"]
    return found


def schema_of(name: str) -> dict:
    return json.loads(importlib.resources.files("nerfjax.schemas").joinpath(f"{name}.schema.json").read_text())
