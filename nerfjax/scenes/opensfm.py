"""Reader of OpenSfM's ``reconstruction.json``.

The file is a list of reconstructions in different frames; the one with most shots is read. A shot's ``rotation`` (angle
times axis) and ``translation`` take world points to the camera (OpenCV axes). Focal lengths and principal points are in
units of max(width, height), the latter from the middle of the image, which is (w/2, h/2) where pixel centres are at
+0.5. Shots of a rig without a pose of their own get it from their rig instance and rig camera. Sparse points are read.

  perspective, simple_radial, radial, brown    polynomial distortion in OpenCV's order ("opencv")
  fisheye, fisheye_opencv                      polynomial in the polar angle ("opencv_fisheye")
  fisheye62, fisheye624                        the same with tangential and prism terms ("rad_tan_thin_prism_fisheye")
  spherical, equirectangular                   the whole sphere, forward in the middle ("equirectangular")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.base import shorten
from nerfjax.scenes.json_frames import parse_json
from nerfjax.scenes.numbers_in_text import numbers, read_text, starts_with
from nerfjax.scenes.registered_photos import Lens, Photo, Registration, lens_of, photo_reader, world_from_camera
from nerfjax.types import DISTORTION

FILE = "reconstruction.json"
MODELS = {
    "perspective": "opencv",
    "simple_radial": "opencv",
    "radial": "opencv",
    "brown": "opencv",
    "fisheye": "opencv_fisheye",
    "fisheye_opencv": "opencv_fisheye",
    "fisheye62": "rad_tan_thin_prism_fisheye",
    "fisheye624": "rad_tan_thin_prism_fisheye",
    "spherical": "equirectangular",
    "equirectangular": "equirectangular",
}
# The coefficients that OpenSfM writes for its camera models.
_TERMS = {
    "perspective": "k1 k2", "simple_radial": "c_x c_y k1", "radial": "c_x c_y k1 k2", "brown": "c_x c_y k1 k2 k3 p1 p2",
    "fisheye": "k1 k2", "fisheye_opencv": "c_x c_y k1 k2 k3 k4", "fisheye62": "c_x c_y k1 k2 k3 k4 k5 k6 p1 p2",
    "fisheye624": "c_x c_y k1 k2 k3 k4 k5 k6 p1 p2 s0 s1 s2 s3",
}  # fmt: skip
_PRISM = {"s1": "s0", "s2": "s1", "s3": "s2", "s4": "s3"}  # ours count from one


def registration(path: Path, root: Path) -> Registration:
    """Parses a reconstruction.json; photos are looked for below ``root``."""
    parts = _load(path)
    part = max(parts, key=lambda part: len(part["shots"]))
    others = [name for other in parts if other is not part for name in other["shots"]]
    notes = []
    if others:
        notes.append(f"{FILE} holds {len(parts)} reconstructions: the one with {len(part['shots'])} shots was taken.")
    notes += _lacking(_dictionary(part["cameras"]))
    photos = [_photo(name, shot, part, path) for name, shot in part["shots"].items()]
    points = [_member(point, "coordinates", path, "points") for point in _dictionary(part.get("points")).values()]
    points = numbers(points, 3 * len(points), path=path, field="points.coordinates").reshape(-1, 3)
    provenance = {"reconstructions": [len(other["shots"]) for other in parts]}
    return Registration(
        "opensfm",
        path,
        root,
        photos,
        [name for name in others if name not in part["shots"]],
        points=points if len(points) else None,
        notes=notes,
        provenance=provenance,
    )


def _lacking(cameras: dict) -> list[str]:
    """Returns notes on coefficients that cameras of their kind have and these have not."""
    notes = []
    for label, camera in cameras.items():
        kind = camera.get("projection_type", "perspective") if isinstance(camera, dict) else None
        terms = _TERMS.get(kind, "").split() if isinstance(kind, str) else []
        absent = [term for term in terms if camera.get(term) is None]
        if absent:
            notes.append(f"Camera {label!r} has no {', '.join(absent)}: taken as 0.")
    return notes


def _load(path: Path) -> list[dict]:
    content = parse_json(read_text(path), path)
    parts = content if isinstance(content, list) else [content]
    good = [p for p in parts if isinstance(p, dict) and isinstance(p.get("shots"), dict) and "cameras" in p]
    if not good:
        raise UserError(
            "The file holds no reconstruction.", file=path, field="shots", expected="[{cameras: …, shots: …}]"
        )
    return good


def _photo(name: str, shot: Any, part: dict, path: Path) -> Photo:
    label = f"shots[{name}]"
    camera_id = _member(shot, "camera", path, label)
    cameras = _dictionary(part["cameras"])
    camera = cameras.get(camera_id) if isinstance(camera_id, str) else None
    if not isinstance(camera, dict):
        raise UserError(
            f"The camera of shot {name} is not in the file.",
            file=path,
            field=f"{label}.camera",
            found=camera_id,
            expected=shorten(list(cameras), 2),
        )
    size = None
    if camera.get("width") is not None and camera.get("height") is not None:
        size = tuple(numbers([camera["width"], camera["height"]], 2, path=path, field=f"cameras[{camera_id}]").tolist())
    lens = _lens(camera, path, f"cameras[{camera_id}]")
    rotation, translation = _world_to_camera(name, shot, part, path)
    return Photo(name, world_from_camera(rotation, translation), lambda actual: lens(size or actual), size)


def _world_to_camera(name: str, shot: dict, part: dict, path: Path) -> tuple[np.ndarray, np.ndarray]:
    if "rotation" in shot:
        return _pose(shot, path, f"shots[{name}]")
    for key, instance in _dictionary(part.get("rig_instances")).items():
        rig_camera_ids = _dictionary(_dictionary(instance).get("rig_camera_ids"))
        if name in rig_camera_ids:
            rig_camera = _dictionary(part.get("rig_cameras")).get(str(rig_camera_ids[name]))
            turn, shift = _pose(instance, path, f"rig_instances[{key}]")
            inner, offset = _pose(rig_camera, path, f"rig_cameras[{rig_camera_ids[name]}]")
            return inner @ turn, inner @ shift + offset
    raise UserError(f"Shot {name} has no pose.", file=path, field=f"shots[{name}].rotation", found="no such key")


def _pose(entry: Any, path: Path, label: str) -> tuple[np.ndarray, np.ndarray]:
    rotation = numbers(_member(entry, "rotation", path, label), 3, path=path, field=f"{label}.rotation")
    translation = numbers(_member(entry, "translation", path, label), 3, path=path, field=f"{label}.translation")
    return rotation_from_angle_axis(rotation), translation


def rotation_from_angle_axis(vector: np.ndarray) -> np.ndarray:
    """Returns the rotation [3, 3] about ``vector`` by its length in radians (Rodrigues)."""
    angle = float(np.linalg.norm(vector))
    x, y, z = vector
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    # sin(a)/a and (1 - cos(a))/a^2 without cancellation: np.sinc(u) is sin(pi u)/(pi u).
    return np.eye(3) + np.sinc(angle / np.pi) * skew + 0.5 * np.sinc(0.5 * angle / np.pi) ** 2 * skew @ skew


def _lens(camera: dict, path: Path, label: str):
    kind = camera.get("projection_type", "perspective")
    if not isinstance(kind, str) or kind not in MODELS:
        raise UserError(
            "A camera model is not supported.",
            file=path,
            field=f"{label}.projection_type",
            found=kind,
            expected=", ".join(MODELS),
            fix="undistort the images (opensfm undistort) and read its reconstruction",
        )

    def value(*keys: str, default: float | int = 0.0) -> float:
        for key in keys:
            if camera.get(key) is not None:
                return float(numbers([camera[key]], 1, path=path, field=f"{label}.{key}")[0])
        return float(default)

    model = MODELS[kind]
    focal = [value("focal_x", "focal", default=-1.0), value("focal_y", "focal_x", "focal", default=-1.0)]
    offset = [value("c_x"), value("c_y")]
    terms = {name: value(_PRISM.get(name, name)) for name in DISTORTION}

    def lens(size: tuple[float | int, float | int]) -> Lens:
        unit = max(size)
        center = [0.5 * size[0] + unit * offset[0], 0.5 * size[1] + unit * offset[1]]
        if model == "equirectangular":
            if abs(size[0] / size[1] / 2 - 1) > 0.01:
                raise UserError(
                    "A spherical photo is not the whole sphere.", file=path, field=label, found=size, expected="2:1"
                )
            return lens_of(model, (1.0, 1.0), (0.5 * size[0], 0.5 * size[1]))
        return lens_of(model, [unit * f for f in focal], center, **terms)

    return lens


def _dictionary(value: Any) -> dict:
    return value if isinstance(value, dict) else {}


def _member(entry: Any, key: str, path: Path, label: str) -> Any:
    if not isinstance(entry, dict) or key not in entry:
        found = "no such key" if isinstance(entry, dict) else type(entry).__name__
        raise UserError("The file is incomplete.", file=path, field=f"{label}.{key}", found=found)
    return entry[key]


def _is_reconstruction(path: Path) -> bool:
    if path.suffix.lower() != ".json":
        return False
    start = starts_with(path, 1 << 20)
    named = path.name.lower().startswith("reconstruction")
    return start.lstrip().startswith(("[", "{")) and '"cameras"' in start and (named or '"shots"' in start)


READER = photo_reader(
    registration, accept=_is_reconstruction, says="is an OpenSfM reconstruction", expected=FILE, axes="opencv"
)
