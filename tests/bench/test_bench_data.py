"""``nerfjax bench data``: rates of every source, in one document."""

from __future__ import annotations

import json
import pathlib

import nerfjax
from nerfjax.bench.data import bench_data, print_data
from nerfjax.cli.main import main

FLAGS = [
    "--config.scene.source=analytic:spheres?views=3&size=16&val=0&test=0",
    "--config.train.batch_rays=64",
    "--config.sampler.name=stratified",
    "--config.sampler.stratified.num_samples=4",
    "--config.field.instant_ngp.levels=2",
    "--config.field.instant_ngp.log2_size=8",
    "--config.parallel.devices=1",
]


def test_every_source_is_timed_against_the_need_of_the_step(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NERFJAX_CACHE", str(tmp_path))
    assert main(["bench", "data", "--config=demo", "--seconds=0.1", "--json", *FLAGS]) == 0
    result = json.loads(capsys.readouterr().out)
    schema = json.loads((pathlib.Path(nerfjax.__file__).parent / "schemas" / "bench_data.schema.json").read_text())
    assert set(result) == set(schema["required"]) == set(schema["properties"])
    rows = schema["properties"]["sources"]["items"]
    assert [source["name"] for source in result["sources"]] == rows["properties"]["name"]["enum"]
    assert result["bytes_per_batch"] == 64 * (4 + 4 + 4) and result["images"] == 3
    for source in result["sources"]:
        assert set(source) == set(rows["required"])
        rate = source["batches_per_second"]
        assert rate > 0 and source["share_of_need"] == rate / result["need_batches_per_second"]
        assert source["megabytes_per_second"] == rate * result["bytes_per_batch"] / 1e6
    print_data(result)
    assert "stream-rays" in capsys.readouterr().out and callable(bench_data)
