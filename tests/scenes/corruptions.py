"""What becomes of spoilt captures.

``Trial`` reads a sample once as it should be and then tells of each spoilt copy:

  refused      a UserError: of the reader, or of an image when it is decoded
  said         the scene is another one, and a new note or finding of the doctor says so
  same         the same cameras for the same frames: nothing was lost
  undecidable  other cameras, and the spoilt file is a capture as good as the first: a legal number in the place of
               another (a camera that stands elsewhere), which only the pictures could contradict
  silent       other cameras, and nobody says so: a fault
  broken       an exception that is no UserError, or a number that is not finite: a fault
"""

from __future__ import annotations

import json
import random
import re
import shutil
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sample_captures import FORMATS, write_sample
from spoiling import Choose, Corruption, corrupt

from nerfjax.errors import UserError
from nerfjax.geometry.poses import invert_similarity, transform_poses
from nerfjax.scenes import READERS, read_scene
from nerfjax.scenes.base import Scene
from nerfjax.scenes.doctor import examine

FAULTS = ("silent", "broken")
OUTCOMES = ("refused", "said", "same", "undecidable", *FAULTS)


@dataclass(frozen=True)
class Reading:
    """What a capture was found to hold."""

    scene: Scene
    poses: dict[str, np.ndarray]
    lenses: dict[str, tuple]
    findings: frozenset[tuple]
    notes: frozenset[str]


def read_all(source: Path, format: str = "auto") -> Reading:
    """Reads a capture, decodes all that it has, examines it, and insists on finite numbers."""
    scene = read_scene(str(source), format=format)
    cameras, geometry = scene.cameras, scene.geometry
    numbers = [cameras.pose, cameras.focal, cameras.center, cameras.distortion, geometry.box, geometry.near]
    numbers += [geometry.far, scene.to_scene] + ([] if scene.points is None else [scene.points])
    assert all(np.isfinite(np.asarray(values, np.float64)).all() for values in numbers), "a number is not finite"
    assert geometry.near < geometry.far and len(scene.frames) == len(cameras.pose)
    json.dumps(scene.provenance, allow_nan=False)
    scene.fingerprint()
    for frame in scene.frames:
        assert frame.image.read().shape[:2] == frame.image.size[::-1]
        frame.valid()
        if frame.depth is not None:
            assert np.isfinite(frame.depth.read(frame.image.size)).all()
    poses = transform_poses(invert_similarity(scene.to_scene), np.asarray(cameras.pose, np.float64))
    names = [frame.name for frame in scene.frames]
    lenses = {
        name: (cameras.models[0] if len(cameras.models) == 1 else int(cameras.model[row]),
               np.concatenate([cameras.focal[row], cameras.center[row], cameras.distortion[row], cameras.size[row]]))
        for row, name in enumerate(names)
    }  # fmt: skip
    findings = frozenset((finding.code, finding.frame, finding.problem) for finding in examine(scene, quick=True))
    return Reading(scene, dict(zip(names, poses, strict=True)), lenses, findings, frozenset(scene.notes))


class Outcome(NamedTuple):
    """What became of a spoilt capture (one of ``OUTCOMES``), and in which words."""

    kind: str
    detail: str


# What puts a legal number in the place of another: nothing in the files contradicts it, and only the pictures could
# (those of the samples show noise). Bytes may make any number; a number that is cut short is one.
LEGAL = re.compile(
    r"(negated|larger|tiny|zero|swapped( with the next)?|transposed|as integers|cut( short at \d+ of \d+)?)$"
    r"|\[bytes from "
    r"|\[[kpb]\d\]: dropped"  # of an XML file: a lens of fewer terms is a lens
)


class Trial:
    """Corruptions of one sample.

    Args:
      name: of ``SAMPLES``.
      folder: an empty one to work in.
      capture: a capture to spoil instead of a sample.
    """

    def __init__(self, name: str, folder: Path, *, capture: Path | None = None):
        self.name, self.folder = name, folder
        if capture is None:
            self.sample = write_sample(name, folder / "clean")
        else:
            self.sample = Path(shutil.copytree(capture, folder / "clean"))
        self.clean = read_all(self.sample)
        assert capture is not None or self.clean.scene.format == FORMATS.get(name, name)

    def run(self, choose: Choose) -> tuple[Corruption, Outcome]:
        """Spoils a copy and tells what became of it."""
        spoilt = self.folder / "spoilt"
        shutil.rmtree(spoilt, ignore_errors=True)
        shutil.copytree(self.sample, spoilt)
        corruption = corrupt(spoilt, choose)
        outcome = self.outcome(spoilt)
        if outcome.kind == "silent" and LEGAL.search(str(corruption)):
            outcome = Outcome("undecidable", outcome.detail)
        return corruption, outcome

    def seeded(self, seed: int) -> tuple[Corruption, Outcome]:
        """As ``run``, with the choices of a seed."""
        return self.run(random.Random(f"{self.name} {seed}").randrange)

    def outcome(self, source: Path) -> Outcome:
        """Tells what a spoilt capture gives, legal or not."""
        try:
            found = next((name for name, reader in READERS.items() if reader.sniff(str(source))), None)
            if found == "photos":  # what is left are images: nobody reads wrong cameras from them
                return Outcome("refused", "no format with cameras is recognised")
            reading = read_all(source)
        except UserError as error:
            return Outcome("refused", str(error).splitlines()[0])
        except Exception as error:
            place = [frame for frame in traceback.extract_tb(error.__traceback__) if "nerfjax" in frame.filename][-1]
            return Outcome("broken", f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})")
        difference = self._difference(reading)
        news = [*sorted(reading.notes - self.clean.notes)]
        news += sorted(f"{code}: {problem}" for code, _, problem in reading.findings - self.clean.findings)
        if difference is None:
            return Outcome("same", news[0] if news else "")
        return Outcome("said", news[0]) if news else Outcome("silent", difference)

    def _difference(self, reading: Reading) -> str | None:
        """What differs in the cameras, or None."""
        clean = self.clean
        if reading.scene.camera_digest == clean.scene.camera_digest:
            return None
        if set(reading.poses) != set(clean.poses):
            return f"frames {sorted(set(reading.poses) ^ set(clean.poses))[:3]}"
        extent = max(float(np.abs(pose[:, 3]).max()) for pose in clean.poses.values())
        for name, pose in clean.poses.items():
            apart = np.abs(reading.poses[name] - pose).max(axis=0) / [1, 1, 1, max(extent, 1e-9)]
            if apart.max() > 2e-6:
                return f"pose of {name} by {apart.max():.2g}"
            (model, lens), (other_model, other) = clean.lenses[name], reading.lenses[name]
            if model != other_model or np.abs(other - lens).max() > 1e-5 * np.abs(lens).max():
                return f"lens of {name}: {other_model} {other.tolist()}, was {model} {lens.tolist()}"
        return None
