"""``nerfjax compare``: what it prints, its JSON against the schema, the page, the exit codes; a pair that trained."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runs"))

from prepared_runs import prepare_run, schema_of, violations  # noqa: E402

from nerfjax.cli.main import main  # noqa: E402
from nerfjax.runs import manifest as manifests  # noqa: E402


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    runs = {
        "base": dict(noise=0.1),
        "proposal": dict(overrides={"sampler.name": "proposal"}, noise=0.05),
        "highest": dict(overrides={"precision": "highest"}, noise=0.05),
    }
    return {name: str(prepare_run(root / name, **options)) for name, options in runs.items()}


def document_of(capsys, *arguments) -> tuple[int, dict, str]:
    code = main(["compare", *arguments, "--json"])
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert violations(document, schema_of("compare")) == []
    return code, document, captured.err


def test_it_shows_runs_costs_differences_and_results(folders, capsys):
    assert main(["compare", folders["base"], folders["proposal"]]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("runs, measured", "what that took", "what differs", "one seed each"))
    assert "sampler.name: stratified | proposal" in out and "ranking" not in out


def test_a_ranking_is_one_document(folders, capsys):
    code, document, _ = document_of(capsys, folders["base"], folders["proposal"], "--rank")
    assert code == 0 and document["refused"] is None
    assert [row["method"] for row in document["ranking"]["order"]] == ["proposal", "stratified"]
    assert document["ranking"]["basis"] == "images"
    assert [pair["verdict"] for pair in document["pairs"]] == ["declared"]
    curve = document["runs"][0]["curve"]
    assert curve[-1]["whole_split"] and curve[-1]["seconds"] == pytest.approx(10.0)


def test_a_refused_ranking_exits_with_2_and_shows_everything_else(folders, capsys, tmp_path):
    page = tmp_path / "page.html"
    code, document, err = document_of(capsys, folders["base"], folders["highest"], "--rank", f"--html={page}")
    assert code == 2 and document["ranking"] is None
    assert document["refused"] == ["precision: default on cpu in A against highest in B"]
    assert "precision" in err and "--force" in err and "Traceback" not in err
    assert "Where they differ most" in page.read_text()
    code, document, _ = document_of(capsys, folders["base"], folders["highest"], "--rank", "--force")
    assert code == 0 and document["ranking"]["forced"] and document["stamps"][0].startswith("FORCED")
    code, document, _ = document_of(capsys, folders["base"], folders["highest"], "--rank", "--subject=precision")
    assert code == 0 and not document["ranking"]["forced"] and "precision" in document["stamps"][0]


def test_the_stamps_stand_above_the_tables(folders, capsys):
    assert main(["compare", folders["base"], folders["highest"], "--rank", "--force"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("! FORCED in spite of: precision") and "FORCED ranking" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{base}"], ["two runs"]),
        (["{base}", "{base}"], ["twice"]),
        (["{base}", "nowhere"], ["no run folder", "nowhere"]),
        (["{base}", "{proposal}", "--force"], ["--rank"]),
        (["{base}", "{proposal}", "--subject=precison"], ["precision"]),
        (["{base}", "{proposal}", "--metric=snr"], ["psnr"]),
        (["{base}", "{proposal}", "--html={base}/manifest.json/x.html"], ["cannot be written"]),
        ([], ["RUN", "--help"]),
    ],
)
def test_wrong_input_is_one_message(arguments, words, folders, capsys):
    assert main(["compare", *(argument.format(**folders) for argument in arguments)]) == 2
    err = capsys.readouterr().err
    assert all(word in err for word in words) and "Traceback" not in err


def test_two_runs_that_were_trained(tmp_path, capsys, monkeypatch):
    """The records of training itself: eight samples a ray against four."""
    version = manifests.code_version()  # somebody may be editing the package between the two
    monkeypatch.setattr(manifests, "code_version", lambda: version)

    def train(name: str, *flags: str) -> str:
        small = {
            "scene.source": "analytic:spheres?views=2&size=16&val=0&test=2", "train.steps": 20, "train.log_every": 5,
            "train.batch_rays": 64, "train.eval_every": 10, "field.instant_ngp.levels": 2, "parallel.devices": 1,
            "field.instant_ngp.log2_size": 8, "field.instant_ngp.density_width": 16, "sampler.name": "stratified",
        }  # fmt: skip
        given = [f"--config.{key}={value}" for key, value in small.items()]
        assert main(["train", "--config=demo", *given, *flags, f"--workdir={tmp_path / name}"]) == 0
        return str(tmp_path / name)

    first, second = (train(f"of {count}", f"--config.sampler.stratified.num_samples={count}") for count in (8, 4))
    capsys.readouterr()
    code, document, _ = document_of(capsys, first, second, "--rank")
    assert code == 0, document["refused"]
    (pair,) = document["pairs"]
    assert pair["verdict"] == "declared" and {d["category"] for d in pair["differences"]} == {"sampler"}
    run = document["runs"][0]
    assert run["spent"]["evaluations"] == 20 * 64 * 8 and run["spent"]["seconds"] > 0 and run["views"] == 2
    assert [point["whole_split"] for point in run["curve"]] == [False, False, True]
    manifest = json.loads((tmp_path / "of 8" / "manifest.json").read_text())
    assert violations(manifest, schema_of("manifest")) == []
    assert manifest["end"]["metrics"]["loss"] > 0
    assert manifest["end"]["evaluations"]["test"]["mean"] == run["metrics"]
