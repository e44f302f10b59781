"""Reader of Agisoft Metashape's (PhotoScan's) camera XML (File > Export > Export Cameras).

A camera's ``transform`` is camera-to-chunk with OpenCV axes, row by row. The transform of its component, else of the
chunk, leads to the world: x -> scale R x + t. A slave of a rig (``master_id``) without a transform of its own stands at
``transform(master) [R | t]`` with the ``rotation`` and ``location`` of its sensor (slave to master, chunk units).
Cameras of several components share a frame only where each component has a transform; else the largest is read.

Every sensor has its own calibration, "adjusted" before "initial". With x = X / Z, y = Y / Z and r = |(x, y)|
(the polar angle along (x, y) for ``fisheye``):

  x' = x (1 + k1 r^2 + k2 r^4 + k3 r^6 + k4 r^8) + (p1 (r^2 + 2 x^2) + 2 p2 x y) (1 + p3 r^2 + p4 r^4), y' likewise
  u = w/2 + cx + x' (f + b1) + y' b2,    v = h/2 + cy + y' f

where the centre of the top-left pixel is (0.5, 0.5); p1 and p2 stand in the order opposite to OpenCV's. Calibrations
of old versions have fx, fy, skew, a principal point from the corner, and OpenCV's order. The skew b2 and p3, p4 have no
counterpart here: up to ``TOLERANCE`` of the image's longer side they are left out with a note, beyond they are refused.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from nerfjax.errors import UserError
from nerfjax.geometry.poses import orthonormalize, similarity_matrix, transform_points, transform_poses
from nerfjax.scenes.base import shorten
from nerfjax.scenes.json_frames import plain_number
from nerfjax.scenes.numbers_in_text import numbers, starts_with
from nerfjax.scenes.registered_photos import Lens, Photo, Registration, lens_of, photo_reader

# A fisheye with tangential terms is COLMAP's THIN_PRISM_FISHEYE without prism.
MODELS = {"frame": "opencv", "fisheye": "thin_prism_fisheye", "equidistant_fisheye": "thin_prism_fisheye"}
TERMS = ("f", "fx", "fy", "skew", "cx", "cy", "b1", "b2", "k1", "k2", "k3", "k4", "p1", "p2", "p3", "p4")
TOLERANCE = 5e-4
Element = ElementTree.Element


class Sensor(NamedTuple):
    """A sensor that is in use: its name, the lens and size of its photos, and what a user should know of it."""

    name: str
    lens: Lens
    size: tuple[float, float]
    note: str | None


def registration(path: Path, root: Path) -> Registration:
    """Parses a camera XML; photos are looked for below ``root``."""
    chunk, notes = _chunk(path)
    sensors = {element.get("id"): element for element in chunk.iterfind("sensors/sensor")}
    worlds = {element.get("id"): _world(element, path) for element in chunk.iterfind("components/component")}
    default = _world(chunk, path)
    cameras = {element.get("id"): element for element in chunk.iterfind("cameras//camera")}
    names = _names(chunk)
    component = _chosen_component(cameras, worlds, notes, default is not None)
    photos, unregistered, disabled, stray, used = [], [], [], [], {}
    for key, element in cameras.items():
        if (element.get("enabled") or "true").lower() in ("0", "false"):
            disabled.append(names[key])
            continue
        master = cameras.get(element.get("master_id"), element)
        home = master.get("component_id") if element.get("component_id") is None else element.get("component_id")
        pose = _pose(element, master, sensors, path)
        if pose is None:
            (stray if master is not element and _has_pose(master) else unregistered).append(names[key])
            continue
        if component is not None and home != component:
            unregistered.append(names[key])
            continue
        world = worlds.get(home)
        world = default if world is None else world
        sensor_id = element.get("sensor_id")
        if sensor_id not in used:
            used[sensor_id] = _sensor(sensors.get(sensor_id), path, f"sensor {sensor_id} of camera {names[key]}")
        sensor = used[sensor_id]
        pose = pose if world is None else transform_poses(world, orthonormalize(pose))
        photos.append(Photo(names[key], pose, lambda size, sensor=sensor: sensor.lens, sensor.size))
    notes += [sensor.note for sensor in used.values() if sensor.note]
    if disabled:
        notes.append(f"{len(disabled)} cameras are disabled and were left out: {shorten(disabled)}")
    if stray:
        notes.append(
            f"{len(stray)} of {len(cameras)} cameras are slaves of a rig whose sensor states no rotation and location; "
            f"this is not supported and they were left out: {shorten(stray)}"
        )
    provenance = {
        "sensors": [sensor.name for sensor in used.values()],
        "sensors_unused": len(sensors) - len(used),
        "slaves": sum(element.get("master_id") not in (None, key) for key, element in cameras.items()),
        "has_world": default is not None or any(world is not None for world in worlds.values()),
    }
    regions = {element.get("id"): element for element in chunk.iterfind("components/component")}
    homes = Counter(camera.get("component_id") for camera in cameras.values() if _has_pose(camera))
    home = component if component is not None else homes.most_common(1)[0][0] if len(homes) == 1 else None
    region = _region(regions.get(home, chunk), worlds.get(home, default), path)
    return Registration(
        "metashape", path, root, photos, unregistered + stray, notes=notes, provenance=provenance, region=region
    )


def _chunk(path: Path) -> tuple[Element, list[str]]:
    """Returns the chunk with most cameras, and notes."""
    try:
        document = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        line, column = error.position
        raise UserError(
            "The file is not valid XML.", file=path, found=f"{error} (line {line}, column {column})"
        ) from error
    except (OSError, ValueError, LookupError) as error:
        raise UserError("The file cannot be read.", file=path, found=error) from error
    chunks = document.findall("chunk") if document.tag == "document" else []
    counts = [sum(map(_has_pose, chunk.iterfind("cameras//camera"))) for chunk in chunks]
    if not any(len(chunk.findall("cameras//camera")) for chunk in chunks):
        raise UserError("The file holds no cameras.", file=path, field="document/chunk/cameras", found=document.tag)
    best = int(np.argmax(counts))
    notes = []
    if len(chunks) > 1:
        notes.append(f"The file holds {len(chunks)} chunks: the one with {counts[best]} aligned cameras was taken.")
    return chunks[best], notes


def _chosen_component(cameras: dict, worlds: dict, notes: list[str], has_default: bool) -> str | None:
    """Returns the one component to read, or None where all cameras share a frame."""
    counts: dict[str, int] = {}
    for element in cameras.values():
        if _has_pose(element) and element.get("component_id") is not None:
            counts[element.get("component_id")] = counts.get(element.get("component_id"), 0) + 1
    if len(counts) < 2 or has_default or all(worlds.get(key) is not None for key in counts):
        return None
    best = max(counts, key=lambda key: counts[key])
    notes.append(
        f"The cameras form {len(counts)} components without a common frame: the one with {counts[best]} was taken."
    )
    return best


def _names(chunk: Element) -> dict[str | None, str]:
    """Names of the cameras by id: the label, below the group's where the label occurs twice."""
    owners = {}
    for group in chunk.iterfind("cameras//group"):
        for camera in group.iterfind("camera"):
            owners[camera.get("id")] = group.get("label") or ""
    labels = {camera.get("id"): camera.get("label") or "" for camera in chunk.iterfind("cameras//camera")}
    counts = Counter(labels.values())
    return {
        key: f"{owners[key]}/{label}" if owners.get(key) and counts[label] > 1 else label
        for key, label in labels.items()
    }


def _has_pose(element: Element) -> bool:
    return bool((element.findtext("transform") or "").strip())


def _pose(element: Element, master: Element, sensors: dict, path: Path) -> np.ndarray | None:
    """Returns the camera-to-chunk pose [3, 4], or None."""
    owner = element if _has_pose(element) else master
    if not _has_pose(owner):
        return None
    matrix = numbers(owner.findtext("transform"), 16, path=path, field=f"camera {owner.get('label')}/transform")
    pose = matrix.reshape(4, 4)[:3]
    if owner is element:
        return pose
    offset = _offset(sensors.get(element.get("sensor_id")), path)
    if offset is None:
        return None
    rotation, shift = pose[:, :3] @ offset[:, :3], pose[:, :3] @ offset[:, 3] + pose[:, 3]
    return np.concatenate([rotation, shift[:, None]], axis=1)


def _offset(sensor: Element | None, path: Path) -> np.ndarray | None:
    """Returns the pose [3, 4] of a slave's sensor in its master, or None where the file does not state it."""
    if sensor is None or (sensor.find("rotation") is None and sensor.find("location") is None):
        return None
    label = f"sensor {sensor.get('id')}"
    turn = numbers(sensor.findtext("rotation") or "1 0 0 0 1 0 0 0 1", 9, path=path, field=f"{label}/rotation")
    shift = numbers(sensor.findtext("location") or "0 0 0", 3, path=path, field=f"{label}/location")
    return np.concatenate([turn.reshape(3, 3), shift[:, None]], axis=1)


def _world(element: Element, path: Path) -> np.ndarray | None:
    """Returns the [4, 4] similarity of a chunk's or component's transform, or None."""
    transform = element.find("transform")
    if transform is None:
        return None
    label = f"{element.tag} {element.get('label')}/transform"
    parts = {"rotation": (9, "1 0 0 0 1 0 0 0 1"), "translation": (3, "0 0 0"), "scale": (1, "1")}
    rotation, translation, scale = (
        numbers(transform.findtext(part) or default, count, path=path, field=f"{label}/{part}")
        for part, (count, default) in parts.items()
    )
    matrix = np.concatenate([rotation.reshape(3, 3), translation[:, None]], axis=1)
    if not (scale[0] > 0 and np.abs(matrix[:, :3] @ matrix[:, :3].T - np.eye(3)).max() < 1e-2):
        raise UserError("A transform is not a similarity.", file=path, field=label, found=(rotation.tolist(), scale[0]))
    matrix = orthonormalize(matrix)
    return similarity_matrix(rotation=matrix[:, :3], scale=float(scale[0]), translation=matrix[:, 3])


def _region(element: Element, world: np.ndarray | None, path: Path) -> np.ndarray | None:
    """Returns the corners [8, 3] of the region of a chunk or component, or None where it states none."""
    region = element.find("region")
    if region is None or any(region.find(part) is None for part in ("center", "size", "R")):
        return None
    center, size, rotation = (
        numbers(region.findtext(part) or "", count, path=path, field=f"{element.tag}/region/{part}")
        for part, count in (("center", 3), ("size", 3), ("R", 9))
    )
    choose = np.indices((2, 2, 2)).reshape(3, -1).T - 0.5
    corners = center + (choose * size) @ rotation.reshape(3, 3)  # the rows are the axes of the region
    return corners if world is None else transform_points(world, corners)


def _sensor(element: Element | None, path: Path, label: str) -> Sensor:
    """Parses a sensor that a camera uses."""
    kind, calibration, resolution = "", None, None
    if element is not None:
        label = f"sensor {element.get('id')} ({element.get('label')})"
        kind = element.get("type") or "frame"
        calibrations = {entry.get("class"): entry for entry in element.findall("calibration")}
        calibration = calibrations.get("adjusted", next(iter(calibrations.values()), None))
        resolution = element.find("resolution")
    if calibration is not None and calibration.find("resolution") is not None:
        resolution = calibration.find("resolution")
    problem = None
    if element is None:
        problem = "no such sensor"
    elif kind not in MODELS:
        problem = f"type {kind}, which is not supported"
    elif calibration is None or resolution is None:
        problem = "no calibration" if calibration is None else "no resolution"
    if problem is not None:
        raise UserError(
            "The sensor of a camera cannot be used.",
            file=path,
            field=label,
            found=problem,
            expected=f"a sensor of type {', '.join(MODELS)} with a calibration",
            fix="align its photos, disable its cameras, or export undistorted photos (Export > Undistort Photos)",
        )
    sides = f"{resolution.get('width')} {resolution.get('height')}"
    width, height = numbers(sides, 2, path=path, field=f"{label}/resolution").tolist()
    lens, note = _lens(calibration, MODELS[kind], (width, height), path, label)
    return Sensor(element.get("label") or "", lens, (width, height), note)


def _lens(
    calibration: Element, model: str, size: tuple[float, float], path: Path, label: str
) -> tuple[Lens, str | None]:
    terms = {}
    for entry in calibration:
        if entry.tag in TERMS:
            terms[entry.tag] = float(
                numbers(entry.text or "", 1, path=path, field=f"{label}/calibration/{entry.tag}")[0]
            )

    def get(key: str) -> float:
        return terms.get(key, 0.0)

    middle = 0.5 * np.array(size)
    if "fx" in terms:
        focal, skew = np.array([get("fx"), terms.get("fy", get("fx"))]), get("skew")
        center = np.array([terms.get("cx", middle[0]), terms.get("cy", middle[1])])
        tangential = (get("p1"), get("p2"))
    else:
        focal, skew = np.array([get("f") + get("b1"), get("f")]), get("b2")
        center = middle + [get("cx"), get("cy")]
        tangential = (get("p2"), get("p1"))
    if (focal <= 0).any():
        raise UserError(
            "A focal length is not positive.", file=path, field=f"{label}/calibration/f", found=focal.tolist()
        )
    # What has no counterpart here, in pixels at the corner that is farthest from the principal point.
    far = np.maximum(np.abs(center), np.abs(np.array(size) - center)) / focal
    q = float(far @ far)
    bent = 3 * q * np.abs(tangential).sum() * abs(get("p3") * q + get("p4") * q * q) * focal[0]
    lost = {"b2": abs(skew) * far[1], "p3, p4": bent}
    lost = {key: float(value) for key, value in lost.items() if value > 0}
    limit = TOLERANCE * max(size)
    too_much = {key: value for key, value in lost.items() if value > limit}
    if too_much:
        key, value = next(iter(too_much.items()))
        raise UserError(
            "A distortion coefficient is not supported.",
            file=path,
            field=f"{label}/calibration/{key}",
            found=f"it moves pixels by up to {value:.1f}",
            expected=f"at most {limit:.1f} pixels",
            fix="export undistorted photos (Export > Undistort Photos) with their cameras",
        )
    said = []
    if lost:
        said.append(f"{', '.join(lost)} were left out; they move pixels by up to {max(lost.values()):.2g}.")
    if ("cx" in terms) != ("cy" in terms):
        said.append("only one of cx and cy is stated: is the other lost?")
    unknown = [entry.tag for entry in calibration if entry.tag not in TERMS and _is_number(entry.text)]
    if unknown:
        said.append(f"terms that are not known have no effect: {', '.join(unknown)}.")
    note = f"{label}: {' '.join(said)}" if said else None
    radial = {key: get(key) for key in ("k1", "k2", "k3", "k4")}
    return lens_of(model, focal, center, **radial, p1=tangential[0], p2=tangential[1]), note


def _is_number(text: str | None) -> bool:
    return bool(text) and bool(np.isfinite(plain_number(text)))


def _is_cameras(path: Path) -> bool:
    start = starts_with(path)
    return path.suffix.lower() == ".xml" and "<document" in start and "<chunk" in start


READER = photo_reader(
    registration,
    accept=_is_cameras,
    says="is Metashape's camera XML",
    expected="the XML of File > Export > Export Cameras in Metashape",
    axes="opencv",
)
