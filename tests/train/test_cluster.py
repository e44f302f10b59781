"""Several processes find each other, train one run, and stop at the same step whichever of them is told to."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from nerfjax.errors import UserError
from nerfjax.train.cluster import ADDRESS, COUNT, INDEX, described_by_hand, on_tpu_host

FLAGS = [
    "--config=demo",
    "--config.scene.source=analytic:spheres?views=3&size=16&val=0&test=0",
    "--config.train.checkpoint_every=20",
    "--config.train.log_every=1000",
    "--config.train.batch_rays=32",
    "--config.sampler.name=stratified",
    "--config.sampler.stratified.num_samples=4",
    "--config.field.instant_ngp.levels=2",
    "--config.field.instant_ngp.log2_size=8",
]


def start(workdir: pathlib.Path, steps: int) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "nerfjax.cli.main", "train", *FLAGS, f"--config.train.steps={steps}"]
    one_device = {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    return [
        subprocess.Popen(
            [*command, f"--workdir={workdir}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **one_device, ADDRESS: address, COUNT: "2", INDEX: str(index)},
        )
        for index in range(2)
    ]  # fmt: skip


def finish(processes: list[subprocess.Popen], expected: int) -> list[str]:
    outputs = []
    try:
        outputs = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [expected, expected], "\n".join(outputs)
    return outputs


def test_a_signal_to_one_process_stops_both_with_one_checkpoint_from_which_both_go_on(tmp_path):
    workdir = tmp_path / "run"
    processes = start(workdir, 100_000)
    deadline = time.monotonic() + 240
    while not list(workdir.glob("checkpoints/*/SHA256SUMS")):
        assert all(process.poll() is None for process in processes) and time.monotonic() < deadline
        time.sleep(0.02)
    processes[1].send_signal(signal.SIGTERM)
    outputs = finish(processes, 75)
    assert all("the same command again" in output and "Traceback" not in output for output in outputs)
    manifest = json.loads((workdir / "manifest.json").read_text())
    stopped = manifest["end"]["step"]
    assert manifest["status"] == "preempted" and manifest["devices"]["process_count"] == 2 and stopped % 10 == 0

    finish(start(workdir, stopped + 30), 0)
    manifest = json.loads((workdir / "manifest.json").read_text())
    assert manifest["status"] == "done" and [each["step"] for each in manifest["restarts"]] == [stopped]
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows if "loss" in row]
    assert steps == sorted(set(steps)) and steps[-1] == stopped + 30


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({COUNT: "2"}, [INDEX, "unset"]),
        ({COUNT: "two", INDEX: "0"}, [COUNT, "two"]),
        ({COUNT: "2", INDEX: "2"}, [INDEX, "0 to 1"]),
    ],
)
def test_a_cluster_that_is_described_in_part(variables, words):
    with pytest.raises(UserError) as caught:
        described_by_hand({ADDRESS: "127.0.0.1:1234", **variables})
    assert all(word in str(caught.value) for word in words)


def test_a_host_told_to_use_the_cpu_is_no_tpu_host():
    assert not on_tpu_host({"JAX_PLATFORMS": "cpu"})
