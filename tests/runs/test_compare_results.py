"""Results of methods, the ranking and its refusals, costs, and runs of other versions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from prepared_runs import prepare_run, schema_of, violations

from nerfjax.errors import UserError
from nerfjax.runs.compare import compare
from nerfjax.runs.compare_document import document_of
from nerfjax.runs.compare_table import grouped_pairs
from nerfjax.runs.ranking import objections_to, rank
from nerfjax.runs.records import read_records
from nerfjax.runs.spending import spent_by
from nerfjax.train.recorded import recorded_options

TOYS = {"scene.source": "analytic:toys?views=3&size=24&val=0&test=3"}
PROPOSAL, HIERARCHICAL = {"sampler.name": "proposal"}, {"sampler.name": "hierarchical"}


def side_by_side(*folders, **options):
    return compare(folders, flat_config=recorded_options, **options)


def runs_of(root, name: str, values: list[list[float]], overrides: dict | None = None):
    """Runs of one method, a seed each, whose images have these PSNRs; nothing is rendered again."""
    folders = []
    for seed, images in enumerate(values):
        folder = prepare_run(root / f"{name}-{seed}", {**(overrides or {}), "train.seed": seed})
        path = folder / "eval" / "100" / "metrics.json"
        document = json.loads(path.read_text())
        for image, value in zip(document["images"], images, strict=True):
            image["psnr"] = value
        document["mean"]["psnr"] = float(np.mean(images))
        path.write_text(json.dumps(document))
        folders.append(folder)
    return folders


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """Two methods that three seeds tell apart, and one that is like the second."""
    root = tmp_path_factory.mktemp("seeds")
    return [
        *runs_of(root, "low", [[20, 21, 22.0], [20.1, 21.1, 22.1], [19.9, 20.9, 21.9]]),
        *runs_of(root, "high", [[25, 26, 27.0], [25.3, 26.3, 27.3], [24.7, 25.7, 26.7]], PROPOSAL),
        *runs_of(root, "same", [[25, 26, 27.1], [25.3, 26.2, 27.3], [24.8, 25.7, 26.7]], HIERARCHICAL),
    ]


def test_seeds_are_replicates_with_an_interval(seeds):
    comparison = side_by_side(*seeds)
    assert [method.name for method in comparison.methods] == ["stratified", "proposal", "hierarchical"]
    assert [len(method.runs) for method in comparison.methods] == [3, 3, 3]
    interval = comparison.cells[0, 0].interval("psnr")
    assert interval.mean == pytest.approx(21) and interval.count == 3
    assert interval.high - interval.mean == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-5)


def test_the_ranking_tells_what_it_cannot_tell_apart(seeds):
    comparison = side_by_side(*seeds)
    ranking = rank(comparison)
    assert ranking.basis == "seeds" and ranking.objections == []
    assert sorted(ranking.order[:2]) == [1, 2] and ranking.order[2] == 0
    assert ranking.ranks == [1, 1, 3]
    assert ranking.alike(1) == [2] and ranking.alike(0) == []
    document = document_of(comparison, ranking)
    assert violations(document, schema_of("compare")) == []
    assert document["ranking"]["order"][0]["not_distinguishable_from"] == [document["ranking"]["order"][1]["method"]]


def test_what_all_seeds_differ_in_is_told_once(seeds):
    told = {verdict: labels for labels, verdict, _ in grouped_pairs(side_by_side(*seeds))}
    assert told["replicate"] == "ABC, DEF, GHI"
    assert [labels for labels, verdict, _ in grouped_pairs(side_by_side(*seeds)) if verdict == "declared"] == [
        "ABC – DEF", "ABC – GHI", "DEF – GHI",
    ]  # fmt: skip


def test_one_seed_each_is_tested_over_the_images(tmp_path):
    low = runs_of(tmp_path, "low", [[20, 24, 28.0]])
    high = runs_of(tmp_path, "high", [[20.5, 24.6, 28.4]], PROPOSAL)
    odd = runs_of(tmp_path, "odd", [[28, 25, 21.0]], HIERARCHICAL)
    ranking = rank(side_by_side(*low, *high))
    assert ranking.basis == "images" and ranking.order == [1, 0] and ranking.ranks == [1, 2]
    ranking = rank(side_by_side(*low, *odd))  # the means differ more, but not image by image
    assert ranking.ranks == [1, 1] and ranking.alike(0) == [1]


def test_the_same_seed_twice_is_one_replicate(tmp_path):
    folders = runs_of(tmp_path, "a", [[20, 21, 22.0], [22, 23, 24.0]])
    again = runs_of(tmp_path, "again", [[30, 31, 32.0]])
    comparison = side_by_side(*folders, *again)
    assert comparison.cells[0, 0].seeds["psnr"] == pytest.approx([26, 23])
    assert any("same seed count as one" in note for note in comparison.notes)


def test_where_less_is_better(tmp_path):
    folders = [*runs_of(tmp_path, "low", [[1, 1, 1.0]]), *runs_of(tmp_path, "high", [[2, 2.1, 2]], PROPOSAL)]
    for folder in folders:
        path = folder / "eval" / "100" / "metrics.json"
        path.write_text(path.read_text().replace('"psnr"', '"lpips"'))
    ranking = rank(side_by_side(*folders, metric="lpips"))
    assert ranking.order == [0, 1] and ranking.ranks == [1, 2]
    with pytest.raises(UserError, match="did you mean 'lpips'"):
        side_by_side(*folders, metric="lpps")


def test_a_confounded_ranking_is_refused_with_every_reason_and_can_be_forced(tmp_path):
    folders = [
        prepare_run(tmp_path / "base"),
        prepare_run(tmp_path / "other", {**PROPOSAL, "precision": "highest", "train.batch_rays": 128}),
        prepare_run(tmp_path / "dead", HIERARCHICAL, status="diverged", measured=None),
    ]
    comparison = side_by_side(*folders)
    with pytest.raises(UserError) as refused:
        rank(comparison)
    text = str(refused.value)
    assert "C dead: diverged at step 50" in text
    assert "precision: default on cpu in A, C against highest in B" in text
    assert "budget: train.batch_rays 64 in A, C against 128 in B" in text
    assert "--subject" in text and "--force" in text
    forced = rank(comparison, force=True)
    assert len(forced.order) == 2 and len(forced.objections) == 3
    stamps = document_of(comparison, forced)["stamps"]
    assert sum(stamp.startswith("FORCED") for stamp in stamps) == 3
    studied = side_by_side(*folders[:2], subjects=["precision", "budget"])
    assert rank(studied).objections == []
    assert "subject" in document_of(studied)["stamps"][0]


def test_one_method_alone_is_no_ranking_even_by_force(tmp_path):
    folders = runs_of(tmp_path, "a", [[20, 21, 22.0], [22, 23, 24.0]])
    for force in (False, True):
        with pytest.raises(UserError, match="nothing to rank"):
            rank(side_by_side(*folders), force=force)


def test_the_mean_over_scenes_names_their_number_and_waits_for_all(tmp_path):
    spheres = [
        *runs_of(tmp_path, "low", [[20, 21, 22.0]]),
        *runs_of(tmp_path, "high", [[25, 26, 27.1]], PROPOSAL),
    ]
    toys = [
        *runs_of(tmp_path, "low on toys", [[30, 31, 32.0]], TOYS),
        *runs_of(tmp_path, "high on toys", [[35, 36, 37.1]], {**TOYS, **PROPOSAL}),
    ]
    comparison = side_by_side(*spheres, *toys)
    assert [scene.name for scene in comparison.scenes] == ["spheres", "toys"] and len(comparison.methods) == 2
    assert comparison.mean(0, "psnr")[:1] == (26,) and comparison.mean(0, "psnr").count == 2
    ranking = rank(comparison)
    assert ranking.means == pytest.approx([31.03333, 26]) and ranking.scenes == [0, 1]
    incomplete = side_by_side(*spheres, toys[0])
    assert incomplete.mean(0, "psnr").mean == 26 and incomplete.mean(1, "psnr") is None
    assert objections_to(incomplete) == ["scene: proposal has no result on toys"]
    assert document_of(incomplete)["methods"][1]["missing_scenes"] == ["toys"]
    assert rank(incomplete, force=True).scenes == [0]
    apart = side_by_side(spheres[0], toys[1])  # each method on a scene of its own
    assert len(objections_to(apart)) == 2
    with pytest.raises(UserError, match="no scene on which all"):
        rank(apart, force=True)


def test_costs_come_from_the_reports(tmp_path):
    folder = prepare_run(tmp_path / "run", {"parallel.devices": 4})
    other = prepare_run(tmp_path / "other", {"train.rungs": 3})
    record, climbing = read_records([folder, other])
    spent = spent_by(record, 55)
    assert spent.seconds == pytest.approx(5.5) and spent.rays == 55 * 64 and spent.evaluations == 55 * 64 * 32
    assert spent.device_hours == pytest.approx(4 * 5.5 / 3600) and spent.flops is None
    assert spent_by(record, 200).seconds is None  # beyond the last report nobody knows
    assert spent_by(climbing, 55).rays is None  # nor how many rays the rungs shot
    text = (other / "metrics.jsonl").read_text()
    lines = [{**json.loads(line), "rays_per_step": 16, "flops_per_step": 1e6} for line in text.splitlines()]
    (other / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    spent = spent_by(read_records([folder, other])[1], 100)
    assert spent.rays == 1600 and spent.evaluations == 1600 * 32 and spent.flops == 1e8


def write_manifest_anew(folder, change) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(change(manifest)))


def test_a_run_of_an_older_version_is_read(tmp_path):
    new = prepare_run(tmp_path / "new", {"train.seed": 1})
    old = prepare_run(tmp_path / "old", code={"commit": "abc", "dirty": False})

    def age(manifest):
        for key in ("curriculum", "restarts", "packages", "seeds", "end", "scene", "schema"):
            manifest.pop(key)
        for key in ("curriculum", "network", "evaluation"):
            manifest["config"].pop(key)
        manifest["config"]["train"].pop("rungs")
        return manifest

    write_manifest_anew(old, age)
    comparison = side_by_side(old, new)
    (pair,) = comparison.pairs
    assert {d.category for d in pair.differences} - {"scene"} == {"code", "seed"}
    assert violations(document_of(comparison), schema_of("compare")) == []


def test_a_run_of_a_newer_version_is_read(tmp_path):
    here = prepare_run(tmp_path / "here")
    newer = prepare_run(tmp_path / "newer")

    def renew(manifest):
        config = manifest["config"]
        config["sampler"] = {"name": "clairvoyant", "clairvoyant": {"horizon": 3}}
        config["weather"] = {"rain": True}
        return {**manifest, "schema": 9, "moon": {"phase": 0.5}}

    write_manifest_anew(newer, renew)
    (pair,) = side_by_side(here, newer).pairs
    assert pair.verdict == "confounded"
    found = {d.key: (d.kind, d.category) for d in pair.differences}
    assert found["sampler.name"] == ("declared", "sampler") and found["weather.rain"] == ("confounder", "setting")


SPOILT = [None, 3, "x", [], {}, [[1]], {"a": {"b": None}}, True]


def test_a_spoilt_record_is_a_message_and_never_a_traceback(tmp_path):
    here, spoilt = prepare_run(tmp_path / "here"), prepare_run(tmp_path / "spoilt")
    manifest = json.loads((spoilt / "manifest.json").read_text())
    evaluation = json.loads((spoilt / "eval" / "100" / "metrics.json").read_text())
    files = {"manifest.json": manifest, "eval/100/metrics.json": evaluation}
    schema, refused, read = schema_of("compare"), 0, 0
    for name, document in files.items():
        for i, key in enumerate(document):
            for value in (SPOILT[i % len(SPOILT)], SPOILT[(i + 3) % len(SPOILT)]):
                (spoilt / name).write_text(json.dumps({**document, key: value}))
                try:
                    comparison = side_by_side(here, spoilt)
                    assert violations(document_of(comparison), schema) == [], (name, key, value)
                    objections_to(comparison)
                    read += 1
                except UserError:
                    refused += 1
        (spoilt / name).write_text(json.dumps(document))
    assert refused and read > refused
    for junk in (b"\xff\xfe\x00", b'{"step": "x"}\n{"step": 3, "seconds": "soon"}\n[1]\n'):
        (spoilt / "metrics.jsonl").write_bytes(junk)
        assert document_of(side_by_side(here, spoilt))["runs"][1]["spent"]["seconds"] is not None  # from the seal
