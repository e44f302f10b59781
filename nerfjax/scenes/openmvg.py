"""Reader of OpenMVG's ``sfm_data.json``.

Written by the cereal library: an object's type is named where it first occurs (``polymorphic_id`` with the highest bit
set, beside ``polymorphic_name``) and repeated by its id without that bit; likewise the ``id`` in ``ptr_wrapper`` stands
for an object that was written before. The members of a base class may be nested in ``value0``.

A view names a file (below ``root_path`` of the machine where it was made), an intrinsic and a pose; a view without
either was not registered. A pose is the rotation of x_camera = R (x_world - center), OpenCV axes. Pixels have their
centres at whole numbers, so that 0.5 is added to the principal point. Landmarks become points.

  pinhole, pinhole_radial_k1, _k3, _brown_t2   one focal length; k1, k2, k3, t1, t2 in OpenCV's order ("opencv")
  fisheye                                      k1 … k4 in the polar angle ("opencv_fisheye")
  spherical                                    the whole sphere ("equirectangular")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.image_files import normal_path
from nerfjax.scenes.json_frames import load_json
from nerfjax.scenes.numbers_in_text import numbers, starts_with
from nerfjax.scenes.registered_photos import Lens, Photo, Registration, lens_of, photo_reader

FILE = "sfm_data.json"
_HIGH_BIT = 0x80000000
# Our model, the key of the coefficients, and which they are.
MODELS = {
    "pinhole": ("opencv", None, ()),
    "pinhole_radial_k1": ("opencv", "disto_k1", ("k1",)),
    "pinhole_radial_k3": ("opencv", "disto_k3", ("k1", "k2", "k3")),
    "pinhole_brown_t2": ("opencv", "disto_t2", ("k1", "k2", "k3", "p1", "p2")),
    "fisheye": ("opencv_fisheye", "fisheye", ("k1", "k2", "k3", "k4")),
    "spherical": ("equirectangular", None, ()),
}


def registration(path: Path, root: Path) -> Registration:
    """Parses an sfm_data.json; photos are looked for below ``root``."""
    content = load_json(path)
    views = _table(content, "views", path)
    poses = {
        key: _pose(value, path, f"extrinsics[{key}]") for key, value in _table(content, "extrinsics", path).items()
    }
    known: dict[int, tuple[str, dict]] = {}
    names: dict[int, str] = {}
    lenses = {
        key: _lens(*_object(value, names, known, path, f"intrinsics[{key}]"), path, f"intrinsics[{key}]")
        for key, value in _table(content, "intrinsics", path).items()
    }
    photos, unregistered = [], []
    for key, value in views.items():
        _, view = _object(value, names, known, path, f"views[{key}]")
        name = _name(view, path, f"views[{key}]")
        pose = poses.get(_identity(view, "id_pose", path, f"views[{key}]"))
        lens = lenses.get(_identity(view, "id_intrinsic", path, f"views[{key}]"))
        if pose is None or lens is None:
            unregistered.append(name)
            continue
        size = [view.get("width"), view.get("height")]
        size = tuple(numbers(size, 2, path=path, field=f"views[{key}].width, height").tolist())
        photos.append(Photo(name, pose, lambda size, lens=lens: lens, size))
    points = [
        value["X"] for value in _table(content, "structure", path).values() if isinstance(value, dict) and "X" in value
    ]
    points = np.array([numbers(point, 3, path=path, field="structure.X") for point in points]).reshape(-1, 3)
    return Registration(
        "openmvg",
        path,
        root,
        photos,
        unregistered,
        points=points if len(points) else None,
        provenance={"version": content.get("sfm_data_version"), "root_path": content.get("root_path")},
    )


def _table(content: dict, key: str, path: Path) -> dict[int, Any]:
    """Returns a list of {key, value} as a dictionary; an absent one is empty."""
    entries = content.get(key) or []
    if not isinstance(entries, list):
        raise UserError(
            "The file is incomplete.", file=path, field=key, found=type(entries).__name__, expected="a list"
        )
    table = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), int) or "value" not in entry:
            raise UserError("An entry is incomplete.", file=path, field=f"{key}[{index}]", expected="key and value")
        table[entry["key"]] = entry["value"]
    return table


def _object(
    value: Any, names: dict[int, str], known: dict[int, tuple[str, dict]], path: Path, label: str
) -> tuple[str, dict]:
    """Returns the type's name and the members of a pointer that cereal wrote."""
    wrapper = value.get("ptr_wrapper") if isinstance(value, dict) else None
    if not isinstance(wrapper, dict) or not isinstance(wrapper.get("id"), int):
        raise UserError("An entry is incomplete.", file=path, field=f"{label}.ptr_wrapper.id", expected="a number")
    kind = value.get("polymorphic_id", 0)
    kind = kind if isinstance(kind, int) else 0
    if "polymorphic_name" in value:
        names[kind & ~_HIGH_BIT] = str(value["polymorphic_name"])
    identity = wrapper["id"] & ~_HIGH_BIT
    data = wrapper.get("data")
    if not isinstance(data, dict):
        if identity not in known:
            raise UserError(
                "An entry refers to none before it.", file=path, field=f"{label}.ptr_wrapper", found=wrapper
            )
        return known[identity]
    members = {**(data["value0"] if isinstance(data.get("value0"), dict) else {}), **data}
    known[identity] = (names.get(kind & ~_HIGH_BIT, ""), members)
    return known[identity]


def _identity(view: dict, key: str, path: Path, label: str) -> int | None:
    value = view.get(key)
    if value is not None and not isinstance(value, int):
        raise UserError("An id is no number.", file=path, field=f"{label}.{key}", found=value)
    return value


def _name(view: dict, path: Path, label: str) -> str:
    filename, folder = view.get("filename"), view.get("local_path") or ""
    if not isinstance(filename, str) or not filename or not isinstance(folder, str):
        raise UserError("A view has no file name.", file=path, field=f"{label}.filename", found=filename)
    return normal_path(f"{folder}/{filename}") if folder else filename


def _pose(value: Any, path: Path, label: str) -> np.ndarray:
    value = value if isinstance(value, dict) else {}
    rotation = numbers(value.get("rotation"), 9, path=path, field=f"{label}.rotation").reshape(3, 3)
    center = numbers(value.get("center"), 3, path=path, field=f"{label}.center")
    return np.concatenate([rotation.T, center[:, None]], axis=1)


def _lens(kind: str, camera: dict, path: Path, label: str) -> Lens:
    if kind not in MODELS:
        raise UserError(
            "A camera model is not supported.",
            file=path,
            field=f"{label}.polymorphic_name",
            found=kind or "no name",
            expected=", ".join(MODELS),
            fix="undistort the images (openMVG_main_ExportUndistortedImages)",
        )
    model, key, names = MODELS[kind]
    width, height = numbers([camera.get("width"), camera.get("height")], 2, path=path, field=f"{label}.width, height")
    if model == "equirectangular":
        if height <= 0 or abs(width / height / 2 - 1) > 0.01:
            raise UserError(
                "A spherical photo is not the whole sphere.",
                file=path,
                field=label,
                found=(width, height),
                expected="2:1",
            )
        return lens_of(model, (1.0, 1.0), (0.5 * width, 0.5 * height))
    focal = numbers([camera.get("focal_length")], 1, path=path, field=f"{label}.focal_length")[0]
    center = numbers(camera.get("principal_point"), 2, path=path, field=f"{label}.principal_point") + 0.5
    terms = numbers(camera.get(key) if key else [], len(names), path=path, field=f"{label}.{key}")
    return lens_of(model, (focal, focal), center, **dict(zip(names, terms, strict=True)))


def _is_sfm_data(path: Path) -> bool:
    return path.suffix.lower() == ".json" and '"sfm_data_version"' in starts_with(path)


READER = photo_reader(registration, accept=_is_sfm_data, says="is OpenMVG's", expected=FILE, axes="opencv")
