"""What tells two runs apart: the choice that is compared, or what spoils the comparison."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from prepared_runs import package, prepare_run

from nerfjax.errors import UserError
from nerfjax.runs.compare import compare, why_unusable
from nerfjax.runs.confounders import CONFOUNDER, CONFOUNDERS, COST, NOTE, REPLICATE, SUBJECT, classify
from nerfjax.runs.manifest import append_restart, append_rollback, seal
from nerfjax.runs.records import chosen_options, distinct_names
from nerfjax.train.configuration import config_to_json, default_config
from nerfjax.train.recorded import recorded_options

OTHER_CODE = {"code": {"version": "0.1.0", "commit": None, "dirty": None, "sha256": "0" * 64}}
# What each run does differently from the base, and the categories in which it so differs.
RUNS = {
    "base": (dict(), set()),
    "seed": (dict(overrides={"train.seed": 1}), {"seed"}),
    "sampler": (dict(overrides={"sampler.name": "proposal"}), {"sampler", "network"}),
    "background": (dict(overrides={"background.name": "black"}), {"background"}),
    "split": (dict(overrides={"scene.source": "analytic:spheres?views=3&size=24&val=0&test=2"}), {"split"}),
    "resolution": (dict(overrides={"scene.downscale": 2}), {"resolution"}),
    "code": (OTHER_CODE, {"code"}),
    "precision": (dict(overrides={"precision": "highest"}), {"precision"}),
    "budget": (dict(overrides={"train.steps": 200}), {"budget"}),
}
STAGES = {"curriculum.stage0": {"until": 20, "train.batch_rays": 32}, "curriculum.stage1": {}}
PAIRS = list(itertools.combinations(RUNS, 2))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return {name: prepare_run(root / name, **options) for name, (options, _) in RUNS.items()}


def pair_of(*folders, subjects=(), flat_config=recorded_options):
    (pair,) = compare(folders, subjects=subjects, flat_config=flat_config).pairs
    return pair


def categories(pair, *kinds: str) -> set[str]:
    return {difference.category for difference in (pair.of_kind(*kinds) if kinds else pair.differences)}


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_every_pair_is_told_apart_by_what_it_differs_in(one, other, folders):
    pair = pair_of(folders[one], folders[other])
    expected = RUNS[one][1] | RUNS[other][1]
    assert categories(pair) == expected
    assert pair.same_scene
    confounded = expected & set(CONFOUNDERS)
    assert categories(pair, CONFOUNDER) == confounded
    declared = "declared" if "sampler" in expected else "replicate"
    assert pair.verdict == ("confounded" if confounded else declared)


def test_without_knowing_the_config_the_verdicts_are_the_same(folders):
    comparison = compare(list(folders.values()), flat_config=chosen_options)
    for pair in comparison.pairs:
        one, other = (list(RUNS)[i] for i in (pair.first, pair.second))
        assert categories(pair) - {"network"} == (RUNS[one][1] | RUNS[other][1]) - {"network"}


def test_the_same_run_twice_is_equal_and_one_folder_twice_is_refused(folders, tmp_path):
    assert pair_of(folders["base"], prepare_run(tmp_path / "again")).verdict == "equal"
    with pytest.raises(UserError, match="twice"):
        compare([folders["base"], folders["base"].parent / "base"])
    with pytest.raises(UserError, match="two runs"):
        compare([folders["base"]])


@pytest.mark.parametrize("subject", ["precision", "config.precision"])
def test_a_confounder_can_be_the_subject(subject, folders):
    pair = pair_of(folders["base"], folders["precision"], subjects=[subject])
    assert pair.verdict == "declared" and categories(pair, SUBJECT) == {"precision"}
    assert pair_of(folders["base"], folders["code"], subjects=[subject]).verdict == "confounded"


def test_a_key_can_be_the_subject(folders):
    pair = pair_of(folders["base"], folders["budget"], subjects=["train.steps"])
    assert pair.verdict == "declared"
    assert pair_of(folders["base"], folders["budget"], subjects=["train.batch_rays"]).verdict == "confounded"


@pytest.mark.parametrize(("subject", "word"), [("precison", "precision"), ("sampler.name", "declared anyway")])
def test_what_cannot_be_a_subject_is_refused(subject, word, folders):
    with pytest.raises(UserError, match=word):
        pair_of(folders["base"], folders["precision"], subjects=[subject])


def test_hardware_and_packages_do_not_confound_quality(folders, tmp_path):
    machine = dict(platform="cpu", device_kind="big", device_count=64, process_count=1, cpu_count=64)
    other = prepare_run(tmp_path / "other", {"train.seed": 1}, devices=machine, packages={"jax": "9.9"})
    comparison = compare([folders["base"], other], flat_config=recorded_options)
    assert comparison.pairs[0].verdict == "replicate"
    assert categories(comparison.pairs[0], COST) == {"hardware"} and categories(comparison.pairs[0], NOTE) == {
        "packages"
    }
    assert any("time and cost are not comparable" in note for note in comparison.notes)
    assert any("versions of packages differ: jax" in note for note in comparison.notes)


def test_the_default_precision_means_something_else_on_another_platform(folders, tmp_path):
    """TPUs round to bfloat16, GPUs to TF32."""
    tpu = prepare_run(tmp_path / "tpu", devices={"platform": "tpu", "device_count": 1})
    assert categories(pair_of(folders["base"], tpu), CONFOUNDER) == {"precision"}
    exact = [
        prepare_run(tmp_path / name, {"precision": "highest"}, devices={"platform": name, "device_count": 1})
        for name in ("gpu", "cpu")
    ]
    assert pair_of(*exact).verdict == "equal"


def test_the_same_cameras_settle_that_it_is_the_same_capture(folders, tmp_path):
    """Where nothing that is recorded explains another fingerprint, the images themselves were changed."""
    edited = prepare_run(tmp_path / "edited", scene_fingerprint="beef" * 16)
    pair = pair_of(folders["base"], edited)
    assert categories(pair, CONFOUNDER) == {"scene"} and pair.same_scene
    renamed = prepare_run(tmp_path / "lego", scene_fingerprint="f00d" * 16, scene={"name": "lego"})
    pair = pair_of(folders["base"], renamed)
    assert categories(pair, CONFOUNDER) == {"scene"} and not pair.same_scene


def test_another_stage_of_training_confounds(folders, tmp_path):
    staged = prepare_run(tmp_path / "staged", STAGES)
    for flat_config in (recorded_options, chosen_options):
        assert categories(pair_of(folders["base"], staged, flat_config=flat_config)) == {"curriculum"}
    derived = prepare_run(tmp_path / "derived", curriculum=[{"stage": 0, "rays_of_rungs": [64]}])
    assert pair_of(folders["base"], derived).verdict == "equal"


def test_another_protocol_is_told_from_another_background(folders, tmp_path):
    def changed(name, key, value):
        folder = prepare_run(tmp_path / name)
        path = folder / "eval" / "100" / "metrics.json"
        document = json.loads(path.read_text())
        document["protocol"][key] = value
        path.write_text(json.dumps(document))
        return folder

    pair = pair_of(folders["base"], changed("a", "psnr", "of the mean MSE"))
    assert categories(pair) == {"protocol"}
    assert categories(pair_of(folders["base"], changed("b", "background", "black"))) == {"background"}


def test_another_step_and_other_views_are_told(folders, tmp_path):
    early = prepare_run(tmp_path / "early", measured=50)
    assert categories(pair_of(folders["base"], early)) == {"evaluation"}
    fewer = prepare_run(tmp_path / "fewer")
    path = fewer / "eval" / "100" / "metrics.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "images": document["images"][:2], "n": 2}))
    (difference,) = pair_of(folders["base"], fewer).differences
    assert difference.key == "evaluation.views" and difference.kind == CONFOUNDER


def test_a_schedule_as_long_as_the_run_is_no_difference(folders, tmp_path):
    same = prepare_run(tmp_path / "same", {"schedule.log_lerp.steps": 100})
    assert pair_of(folders["base"], same).verdict == "equal"
    longer = prepare_run(tmp_path / "longer", {"schedule.log_lerp.steps": 150})
    assert categories(pair_of(folders["base"], longer)) == {"schedule"}


def test_what_takes_no_part_is_no_difference(folders, tmp_path):
    same = prepare_run(
        tmp_path / "same",
        {"sampler.proposal.num_final": 7, "network.hashgrid.levels": 2, "train.log_every": 3, "data.reuse": 2},
    )
    assert pair_of(folders["base"], same).verdict == "equal"


def test_what_was_changed_in_the_middle_of_a_run_is_told(folders, tmp_path):
    def restarted(name, **changes):
        folder = prepare_run(tmp_path / name)
        config = json.loads((folder / "manifest.json").read_text())["config"]
        config["sampler"]["stratified"]["num_samples"] = changes.pop("samples", 64)
        config["train"]["log_every"] = 7
        config["sampler"]["proposal"]["num_final"] = 7
        append_restart(folder, step=50, config=config, **{"code": package(), **changes})
        seal(folder, status="done", step=100, seconds=10.0)
        return folder

    assert pair_of(folders["base"], restarted("only moved")).verdict == "equal"
    pair = pair_of(folders["base"], restarted("samples", samples=65))
    assert categories(pair) == {"sampler", "changes"} and pair.verdict == "confounded"
    assert categories(pair_of(folders["base"], restarted("code", **OTHER_CODE))) == {"code"}
    append_rollback(restarted("rolled back"), {"step": 60, "tensor": "loss", "restored_step": 50, "rate_scale": 0.3})
    assert categories(pair_of(folders["base"], tmp_path / "rolled back")) == {"changes"}


def test_every_option_has_been_thought_about():
    """A new key of the config must get a row in RULES: is it a choice, a confounder, or neither?"""
    config = config_to_json(default_config())
    unknown = [key for key in chosen_options(config) if (rule := classify(key)) is not None and rule[1] == "setting"]
    assert unknown == []
    assert classify("train.brand_new") == (CONFOUNDER, "setting")
    assert classify("train.opacity_weight") == ("declared", "loss")
    assert classify("seeds") == (REPLICATE, "seed")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(status="diverged", measured=None), "diverged at step 50 of 100"),
        (dict(status="preempted"), "unfinished, stopped at step 50 of 100"),
        (dict(status="failed"), "failed at step 50"),
        (dict(status=None), "unfinished, stopped at step 100"),
        (dict(measured=None), "not evaluated on the test split: nerfjax eval"),
        (dict(split="train"), r"not evaluated on the test split; only on train \(step 100\)"),
    ],
)
def test_runs_without_a_result_say_why(options, words, folders, tmp_path):
    comparison = compare([folders["base"], prepare_run(tmp_path / "run", **options)], flat_config=recorded_options)
    assert list(comparison.unusable) == [1]
    assert re.search(words, comparison.unusable[1])
    assert why_unusable(comparison.records[0], "test") is None


def test_a_damaged_evaluation_is_told(folders, tmp_path):
    run = prepare_run(tmp_path / "run")
    (run / "eval" / "100" / "metrics.json").write_text('{"step": 100, "ima')
    comparison = compare([folders["base"], run], flat_config=recorded_options)
    assert "eval/100/metrics.json is damaged" in comparison.unusable[1]


def test_names_are_as_short_as_they_tell_apart(tmp_path):
    paths = [tmp_path / "a" / "run", tmp_path / "b" / "run"]
    assert distinct_names(paths) == ["a/run", "b/run"]
    assert distinct_names(paths[:1]) == ["run"]
