"""A tiny capture of every format with a file of cameras, as full of fields as the format is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import ring_capture as ring
import test_bundler
import test_dialects
import test_idr
import test_metashape
import test_middlebury
import test_nerfies
import test_nsvf
import test_nvm
import test_openmvg
import test_opensfm
import test_polycam
import test_realitycapture
import test_record3d
import test_scannet
from colmap_samples import sample_model
from colmap_samples import write_images as write_colmap_images
from PIL import Image

from nerfjax.geometry.poses import look_at
from nerfjax.scenes.assemble import assemble
from nerfjax.scenes.capture import Capture, RawFrame
from nerfjax.scenes.colmap_model import ColmapCamera
from nerfjax.scenes.colmap_write import write_model
from nerfjax.scenes.images import ImageReference
from nerfjax.scenes.writers import write_scene

LENS = np.array([0.05, -0.02, 0, 0, 0.004, -0.003] + [0.0] * 6)


def ring_scene(count=6, *, lens=True, forward=False, alpha=False):
    """Cameras around a point (or side by side), with pictures of noise."""
    random, frames = np.random.default_rng(0), []
    for i in range(count):
        pose = np.eye(4)
        position = np.array([0.2 * i - 0.5, 0.01 * i, 0.1 * (i % 2)])
        pose[:3] = look_at(position, [0.05 * i, 3, 0]) if forward else ring.opengl(i, count)[:3]
        picture = random.integers(0, 256, (18, 24, 4 if alpha else 3), dtype=np.uint8)
        if alpha:
            picture[:4] = 0
        frames.append(RawFrame(
            name=f"{i:03d}.png", split=("train", "train", "test")[i % 3], pose=pose,
            image=ImageReference(None, (24, 18), loader=lambda picture=picture: picture, identity=str(i)),
            focal=np.array([30.0, 31.0 if lens else 30.0]), center=np.array([12.4, 8.8] if lens else [12.0, 9.0]),
            distortion=LENS * lens, model="opencv" if lens else "pinhole",
        ))  # fmt: skip
    points = ring.FOCUS + 0.3 * random.uniform(-1, 1, (12, 3)) if not forward else None
    return assemble(Capture("sample", "none", "", tuple(frames), points=points))


def noise(folder: Path) -> None:
    """Puts noise into the images of one colour that readers' own tests make: each frame then shows something else."""
    random = np.random.default_rng(1)
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".png", ".jpg", ".jpeg")):
        with Image.open(path) as image:
            kind, mode, size = image.format, image.mode, image.size
        if mode == "RGB" and "mask" not in path.as_posix():
            values = random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
            Image.fromarray(values).save(path, kind)


def _transforms_json(folder: Path) -> None:
    """instant-ngp and nerfstudio at once: masks, depths, points, boxes, a lens per frame, settings."""
    write_scene(ring_scene(), folder, "transforms_json")
    content = json.loads((folder / "transforms.json").read_text())
    shared = {key: content["frames"][0].pop(key) for key in ("w", "h", "k1", "p1", "camera_model")}
    for frame in content["frames"]:
        for key in shared:
            frame.pop(key, None)
        frame |= {"mask_path": "m.png", "depth_file_path": "d.png", "sharpness": 20.0, "time": 0.5}
    content |= shared | {
        "aabb_scale": 4, "scale": 0.33, "offset": [0.5, 0.5, 0.5], "aabb": [[-1, -1, -1], [1, 1, 1]],
        "applied_scale": 0.5, "applied_transform": np.eye(4)[:3].tolist(), "depth_unit_scale_factor": 0.001,
    }  # fmt: skip
    Image.new("L", (24, 18), 255).save(folder / "m.png")
    Image.fromarray(np.full((18, 24), 1000, np.uint16)).save(folder / "d.png")
    (folder / "transforms.json").write_text(json.dumps(content, indent=1))


def _colmap(folder: Path, text: bool) -> None:
    names = [f"{i:03d}.png" for i in range(6)]
    write_colmap_images(folder / "images", names, (40, 30))
    cameras = [ColmapCamera("OPENCV", (40, 30), np.array([36.0 + i, 38, 21, 14.5, 0.05, -0.02, 4e-3, -3e-3]))
               for i in range(6)]  # fmt: skip
    write_model(folder / "sparse/0", sample_model(names, cameras=cameras), text=text)


def _llff(folder: Path) -> None:
    write_scene(ring_scene(lens=False, forward=True), folder, "llff")


def _scannet(folder: Path, shared: bool) -> None:
    test_scannet.write_scannet(folder, shared=shared)


def _rig(folder: Path) -> None:
    inner = "<rotation>1 0 0 0 1 0 0 0 1</rotation><location>0.1 0.2 0.3</location>"
    slave = 'sensor_id="1" master_id="{}"'
    pairs = [(i, slave.format(i)) for i in (0, 2, 4)]
    cameras = "".join(
        test_metashape.camera(i) + test_metashape.camera(i + 1, pose=None, attributes=words) for i, words in pairs
    )
    sensors = test_metashape.sensor() + test_metashape.sensor(1, inner=inner)
    test_metashape.write(folder, sensors, cameras, files=[f"photos/IMG_{i}.JPG" for i in range(6)])


def _opensfm(folder: Path) -> None:
    test_opensfm.write(folder, test_opensfm.PERSPECTIVE)


def _phototourism(folder: Path) -> None:
    import test_phototourism  # needs h5py

    test_phototourism.write(folder)


def _seven(folder: Path) -> None:
    test_scannet.write_seven(folder)


SAMPLES: dict[str, Callable[[Path], object]] = {
    "blender": lambda folder: write_scene(ring_scene(alpha=True), folder, "blender"),
    "transforms_json": _transforms_json,
    "colmap": lambda folder: _colmap(folder, False),
    "colmap_text": lambda folder: _colmap(folder, True),
    "llff": _llff,
    "nerfies": test_nerfies.write,
    "idr": test_idr.write,
    "nsvf": test_nsvf.write,
    "trajectory": test_nsvf.write_log,
    "record3d": test_record3d.write,
    "polycam": lambda folder: test_polycam.write(folder),
    "sevenscenes": _seven,
    "scannet": lambda folder: _scannet(folder, True),
    "scannet_per_frame": lambda folder: _scannet(folder, False),
    "scannet_splits": test_dialects.write_nerf_plus_plus,
    "metashape": test_metashape.write,
    "metashape_rig": _rig,
    "realitycapture": test_realitycapture.write,
    "openmvg": lambda folder: test_openmvg.write(folder, "pinhole_brown_t2", {"disto_t2": [0.05, 0, 0, 0, 0.01]}),
    "opensfm": _opensfm,
    "nvm": test_nvm.write,
    "bundler": test_bundler.write,
    "middlebury": test_middlebury.write,
    "phototourism": _phototourism,
}
FORMATS = {"colmap_text": "colmap", "trajectory": "nsvf", "sevenscenes": "scannet", "scannet_per_frame": "scannet",
           "scannet_splits": "scannet",
           "metashape_rig": "metashape"}  # fmt: skip


def write_sample(name: str, folder: Path) -> Path:
    """Writes the sample into a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    SAMPLES[name](folder)
    noise(folder)
    return folder
