"""Whatever is wrong in a capture is refused or said: no traceback, no number that is not finite, no other cameras."""

from __future__ import annotations

import functools
import importlib.util
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from corruptions import FAULTS, LEGAL, Trial
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_captures import FORMATS, SAMPLES
from spoiling import Corruption, corrupt

from nerfjax.scenes import READERS

EXAMPLES = 4  # of each sample; the trial has fifteen times as many


@pytest.fixture(scope="module")
def trial_of():
    with tempfile.TemporaryDirectory() as folder:
        yield functools.cache(lambda name: Trial(name, Path(folder) / name))


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_corruption_is_refused_or_said(trial_of, name, data):
    if name == "phototourism" and importlib.util.find_spec("h5py") is None:
        pytest.skip("h5py is not installed")
    corruption, outcome = trial_of(name).run(lambda count: data.draw(st.integers(0, count - 1)))
    assert outcome.kind not in FAULTS, f"{name}: {corruption}: {outcome.detail}"


def test_every_format_with_a_file_of_cameras_has_a_sample():
    assert {FORMATS.get(name, name) for name in SAMPLES} == set(READERS) - {"analytic", "prepared", "photos"}


def test_the_engine_sees_careless_readers(trial_of, tmp_path, monkeypatch):
    """One that takes what is not a number for zero, and one that falls over it."""
    from nerfjax.scenes import scannet

    trial, source = trial_of("scannet"), tmp_path / "copy"
    shutil.copytree(trial.sample, source)
    pose = source / "pose/1.txt"
    rows = [line.split() for line in pose.read_text().splitlines()]
    rows[0][3] = "nan"
    pose.write_text("\n".join(map(" ".join, rows)))
    assert trial.outcome(source).kind == "refused"
    real = scannet.read_matrix

    def forgiving(path, *args, **options):
        path.write_text(path.read_text().replace("nan", "0"))
        return real(path, *args, **options)

    def careless(path, *args, **options):
        return {}[path]

    for reader, kind in ((forgiving, "silent"), (careless, "broken")):
        monkeypatch.setattr(scannet, "read_matrix", reader)
        assert trial.outcome(source).kind == kind


def test_the_same_choices_make_the_same_corruption(trial_of):
    assert trial_of("nsvf").seeded(3)[0] == trial_of("nsvf").seeded(3)[0]


@pytest.mark.parametrize(
    ("how", "legal"),
    [("1.5 negated", True), ("swapped with the next", True), ("1.5 not a number", False), ("dropped", False),
     ("emptied", False), ("1.5 huge", False)],
)  # fmt: skip
def test_only_a_legal_number_may_pass_for_another(how, legal):
    assert bool(LEGAL.search(str(Corruption("a.txt", "line 1 word 2", how)))) is legal


def test_corruptions_of_images_and_files_occur(tmp_path):
    wheres = set()
    for seed in range(60):
        folder = tmp_path / str(seed)
        SAMPLES["nsvf"](folder)
        wheres.add(corrupt(folder, random.Random(seed).randrange).where.split()[0])
    assert {"file", "image", "line"} <= wheres
