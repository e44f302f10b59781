"""The automatic sampling: its rules point the right way, what is set by hand stays, and scale does not matter."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.errors import UserError
from nerfjax.geometry.cameras import cameras_from
from nerfjax.samplers.auto import KEYS, recommend
from nerfjax.samplers.scene_facts import SceneFacts, measure
from nerfjax.scenes import read_scene
from nerfjax.scenes.analytic_field import evaluate_points
from nerfjax.scenes.analytic_scenes import primitives
from nerfjax.scenes.silhouettes import CELLS, visual_hull
from nerfjax.train import configuration
from nerfjax.train.automatic import facts_of, resolve_as_before, resolve_auto, settings_for, with_bounds
from nerfjax.train.build import geometry_with_points
from nerfjax.train.configuration import config_hash, default_config, flat_keys, load_config
from nerfjax.types import SceneGeometry

TOYS = "analytic:spheres?views=6&size=24&val=0&test=1"
OBJECT = SceneFacts(
    bounded=True, facing="object", spacing="linear", near=2.0, far=6.0, half=1.5, content="silhouettes",
    depth=(3.2, 4.0, 4.8), reach=0.8, pixel=0.011, cell=0.0037, intervals={"linear": 230.0}, share=0.1, views=100.0,
    images=100, pixels=4_000_000, content_pixels=1_200_000,
)  # fmt: skip
PHOTOS = SceneFacts(
    bounded=False, facing="inward", spacing="piecewise", near=0.3, far=1000.0, half=1.2, content="points",
    depth=(0.7, 1.0, 3.0), reach=3.0, pixel=0.004, cell=0.0008, intervals={"piecewise": 120.0, "disparity": 200.0},
    share=0.3, views=30.0, images=43, pixels=1_400_000, content_pixels=1_000_000,
)  # fmt: skip


@pytest.fixture(scope="module")
def scene():
    return read_scene(TOYS)


def auto_config(overrides=None, name="nerfjax"):
    return load_config(name, {"sampler.name": "auto", **(overrides or {})})


def ring(scale=1.0, size=40, views=8, focal=None, points=None, bounded=False, spacing="piecewise"):
    """Cameras on a ring of radius 4 ``scale`` that look at the origin, around a box of half side ``scale``."""
    turn = 2 * np.pi * np.arange(views) / views
    back = np.stack([np.cos(turn), np.sin(turn), np.zeros(views)], axis=-1)
    up = np.broadcast_to([0.0, 0.0, 1.0], back.shape)
    poses = np.stack([np.cross(up, back), up, back, 4.0 * scale * back], axis=-1)
    cameras = cameras_from(poses, np.full(2, focal or size), size=np.full(2, size))
    box = np.array([[-scale] * 3, [scale] * 3], np.float32)
    near, far = np.float32(2 * scale), np.float32((6 if bounded else 500) * scale)
    return SceneGeometry(box, near, far, cameras, spacing=spacing, bounded=bounded, points=points)


# --- the rules point the right way ------------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", [OBJECT, PHOTOS])
def test_a_finer_footprint_asks_for_more(facts):
    def at(finer):
        intervals = {name: count * finer for name, count in facts.intervals.items()}
        return recommend(facts._replace(pixel=facts.pixel / finer, cell=facts.cell / finer, intervals=intervals,
                                        pixels=int(facts.pixels * finer**2),
                                        content_pixels=int(facts.content_pixels * finer**2))).values()  # fmt: skip

    steps = [at(finer) for finer in (0.25, 0.5, 1, 2, 64)]
    for field in ("field_resolution", "field_log2_size", "resolution", "diagonal_steps", "num_samples"):
        values = [step[field] for step in steps]
        assert values == sorted(values) and values[0] < values[-1], field
    evaluations = [sum(step["num_proposal"]) for step in steps]
    assert evaluations == sorted(evaluations) and evaluations[0] < evaluations[-1]
    assert steps[1]["field_resolution"] == pytest.approx(2 * steps[0]["field_resolution"], rel=0.01)


def test_a_grid_has_two_cells_to_a_pixel():
    values = recommend(OBJECT).values()
    assert values["field_resolution"] == round(2 / OBJECT.cell)
    assert values["resolution"] * 4 * OBJECT.cell <= 1 < values["resolution"] * 8 * OBJECT.cell


@pytest.mark.parametrize("needed", [10, 300, 700, 2000, 9000])
def test_the_rounds_resolve_a_pixel(needed):
    values = recommend(OBJECT._replace(intervals={"linear": float(needed)})).values()
    resolved = values["num_final"] * np.prod(np.array(values["num_proposal"]) / 4)
    assert resolved >= needed
    assert values["num_proposal"] == (64,) or resolved / 16 < needed  # no round too many


def test_a_deeper_scene_gets_more_cascades():
    reaches = (0.5, 1.0, 3.9, 7.0, 30.0, 1e4)
    cascades = [recommend(PHOTOS._replace(reach=reach)).values()["cascades"] for reach in reaches]
    assert cascades == [2, 2, 4, 5, 7, 8]
    for count, reach in zip(cascades[:5], reaches[:5], strict=True):
        assert 2 ** (count - 1) >= reach  # the last cascade holds the points
    assert recommend(OBJECT).values()["cascades"] == 1


def test_spacing():
    assert recommend(OBJECT).values()["spacing"] == "linear"
    assert recommend(PHOTOS).values()["spacing"] == "piecewise"
    far = PHOTOS._replace(intervals={"piecewise": 4000.0, "disparity": 1000.0})
    assert recommend(far).values()["spacing"] == "disparity"
    # Without points there is no reason to leave what the scene asks for.
    assert recommend(far._replace(content="cameras")).values()["spacing"] == "piecewise"


def test_a_step_spends_what_it_may():
    for evaluations in (2**14, 2**16, 2**18):
        values = recommend(OBJECT, evaluations=evaluations).values()
        assert values["rays"] * values["num_final"] == evaluations
    few = OBJECT._replace(pixels=1000, content_pixels=900)
    assert recommend(few).values()["rays"] == 512
    by_hand = recommend(OBJECT, {"sampler": "stratified", "num_samples": 256}).values()
    assert by_hand["rays"] * 256 == 2**16


def test_it_is_a_function():
    first, second = recommend(PHOTOS), recommend(PHOTOS._replace())
    assert first == second and [choice.field for choice in first.choices] == list(KEYS)
    assert all(len(choice.reason) > 10 and "\n" not in choice.reason for choice in first.choices)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(near=7.0), "near is not less"),
        (dict(near=float("nan")), "near is not less"),
        (dict(depth=(4.0, 3.0, 5.0)), "do not rise"),
        (dict(depth=(0.1, 0.2, 0.3)), "nearer than near"),
        (dict(cell=0.0), "width"),
        (dict(half=0.0), "extent"),
        (dict(share=0.0), "share"),
        (dict(content_pixels=5_000_000), "more pixels"),
        (dict(images=0), "image"),
        (dict(views=101.0), "image"),
        (dict(reach=9.0), "outside its box"),
        (dict(intervals={"linear": 0.0}), "interval"),
        (dict(bounded=False, reach=1.0, spacing="power"), "not measured"),
    ],
)
def test_contradictions_are_refused(wrong, message):
    with pytest.raises(UserError, match=message):
        recommend(OBJECT._replace(**wrong))


# --- the facts are true -----------------------------------------------------------------------------------------------


def test_facts_of_a_point():
    """One point in the middle: everything is known in closed form."""
    facts = measure(ring(size=40, focal=80.0), points=np.zeros((1, 3), np.float32))
    assert facts.content == "points" and facts.facing == "inward" and facts.views == 8
    assert facts.depth == pytest.approx((4.0, 4.0, 4.0))
    assert facts.pixel == pytest.approx(4.0 / 80, rel=1e-3)
    assert facts.cell == pytest.approx(4.0 / 80 / 4, rel=1e-3)  # the contracted cube is four half sides wide
    assert facts.pixels == 8 * 40**2
    # piecewise, t > 1: dt/ds = 2 t^2 (g(far) - g(near)) with g = 1 - 1 / (2 t)
    span = 1 / (2 * 2.0) - 1 / (2 * 500.0)
    assert facts.intervals["piecewise"] == pytest.approx(2 * 16 * span / (4 / 80), rel=1e-2)
    assert facts.intervals["log"] == pytest.approx(4 * np.log(250) / (4 / 80), rel=1e-2)


def test_a_bounded_ray_counts_its_chord():
    facts = measure(ring(bounded=True, spacing="linear", focal=80.0, views=4), points=np.zeros((1, 3), np.float32))
    assert facts.intervals == {"linear": pytest.approx(2.0 / (4 / 80), rel=1e-3)}  # a chord of 2 through the box
    assert facts.cell == pytest.approx(4 / 80 / 2, rel=1e-3)


def test_contracted_space_shrinks_far_pixels():
    far_away = np.array([[30.0, 0.0, 0.0]], np.float32)
    near, far = (measure(ring(focal=80.0), points=p) for p in (np.zeros((1, 3), np.float32), far_away))
    assert far.pixel > 5 * near.pixel
    # 34 away (or 26): a width of t / 80 at r = 30, times (2 - 1/r) / r, over a cube of 4
    assert far.cell == pytest.approx(34 / 80 / 4 * (2 - 1 / 30) / 30, rel=0.35)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("scale", [0.01, 300.0])
def test_scale_does_not_matter(bounded, scale):
    """A bounded capture keeps its unit: only near and far may change with it; others come normalised (below)."""
    points = np.random.default_rng(0).uniform(-0.8, 0.8, (200, 3)).astype(np.float32)
    spacing = "linear" if bounded else "disparity"
    one, other = (
        recommend(measure(ring(s, points=points, bounded=bounded, spacing=spacing), points=s * points)).values()
        for s in (1.0, scale)
    )
    for field in KEYS:
        if field in ("near", "far"):
            assert other[field] == pytest.approx(scale * one[field], rel=1e-5)
        elif field == "field_resolution":
            assert other[field] == pytest.approx(one[field], abs=1)
        else:
            assert other[field] == one[field], field


def test_a_normalised_capture_is_the_same_at_any_scale(tmp_path):
    """The same photographs with poses in other units: the scenes are equal, and so are the recommendations."""
    from PIL import Image

    values = []
    for scale in (1.0, 250.0):
        folder = tmp_path / str(scale)
        folder.mkdir()
        cameras, frames = ring(scale).cameras, []
        for row in range(8):
            Image.fromarray(np.full((40, 40, 3), 9 * row, np.uint8)).save(folder / f"{row}.png")
            pose = np.concatenate([cameras.pose[row], [[0, 0, 0, 1]]]).tolist()
            frames.append(dict(file_path=f"{row}.png", transform_matrix=pose))
        intrinsics = dict(fl_x=40.0, fl_y=40.0, cx=20.0, cy=20.0, w=40, h=40)
        (folder / "transforms.json").write_text(json.dumps(dict(**intrinsics, frames=frames)))
        values.append(recommend(facts_of(read_scene(str(folder)))).values())
    assert values[0] == {**values[1], "field_resolution": pytest.approx(values[1]["field_resolution"], abs=1)}


def test_the_hull_holds_the_object(scene):
    hull = visual_hull(scene)
    assert 0.01 < hull.share < 0.6 and 0.01 < hull.pixels < 0.9
    half = float(scene.geometry.box[1, 0])
    assert len(hull.points) == round(hull.share * CELLS**3) and np.abs(hull.points).max() < half
    # Every cell whose middle is solid is left standing.
    middles = half * (2 * (np.arange(CELLS) + 0.5) / CELLS - 1)
    grid = np.stack(np.meshgrid(middles, middles, middles, indexing="ij"), axis=-1).reshape(-1, 3).astype(np.float32)
    solid = grid[np.asarray(evaluate_points(primitives("spheres"), jnp.asarray(grid))[0]) > 5.0]
    cell = 2 * half / CELLS
    known = {tuple(row) for row in np.floor((hull.points + half) / cell).astype(int)}
    assert len(solid) > 100 and {tuple(row) for row in np.floor((solid + half) / cell).astype(int)} <= known


def test_a_capture_without_points_is_taken_to_be_where_the_cameras_look():
    facts = measure(ring(focal=80.0))
    assert facts.content == "cameras" and facts.share == 1.0
    assert facts.depth[1] == pytest.approx(4.0, rel=0.05)


# --- what is set by hand stays, exactly -------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", [OBJECT, PHOTOS])
@pytest.mark.parametrize("field", KEYS)
def test_a_field_set_by_hand_stays(facts, field):
    automatic = {choice.field: choice for choice in recommend(facts).choices}
    other = {"num_proposal": (40, 24), "sampler": "stratified", "spacing": "sqrt", "proposal_resolution": (32, 64)}
    value = other.get(field, automatic[field].value * 2)
    chosen = {choice.field: choice for choice in recommend(facts, {field: value}).choices}
    assert chosen[field].value == value and chosen[field].by_hand and "set by hand" in chosen[field].reason
    assert sum(choice.by_hand for choice in chosen.values()) == 1


@pytest.mark.parametrize(
    ("field", "value"), [("num_final", "many"), ("num_final", True), ("spacing", 3), ("near", "x")]
)
def test_a_value_of_another_type_is_refused(field, value):
    with pytest.raises(UserError, match=field):
        recommend(OBJECT, {field: value})


def test_every_way_of_setting_a_field(scene):
    plain = resolve_auto(auto_config(), scene)
    assert plain.sampler.name == "proposal" and plain.sampler.proposal.spacing == "linear"
    by_key = resolve_auto(auto_config({"sampler.proposal.num_final": 17, "train.batch_rays": 96}), scene)
    by_field = resolve_auto(auto_config({"sampler.auto.num_final": 17, "sampler.auto.rays": 96}), scene)
    for config in (by_key, by_field):
        assert config.sampler.proposal.num_final == 17 and config.train.batch_rays == 96
        assert config_hash(config) == config_hash(by_key) != config_hash(plain)
    # A value that happens to be the file's own stays, too.
    own = load_config("nerfjax").field.instant_ngp.max_resolution
    kept = resolve_auto(auto_config({"field.instant_ngp.max_resolution": own}), scene)
    assert kept.field.instant_ngp.max_resolution == own != plain.field.instant_ngp.max_resolution
    # What auto has nothing to say of is as it was.
    assert plain.sampler.proposal.anneal_steps == load_config("nerfjax").sampler.proposal.anneal_steps


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"sampler.auto.num_final": 16, "sampler.proposal.num_final": 17}, "set twice"),
        ({"sampler.auto.num_samples": 16}, "no such option"),
        ({"sampler.auto.sampler": "proposa"}, "proposal"),
        ({"sampler.auto.sampler": "auto"}, "itself"),
        ({"sampler.auto.keep": ("train.batch_ray",)}, "batch_rays"),
        ({"scene.near": 9.0, "scene.far": 3.0}, "near is not less"),
        ({"sampler.auto.field_resolution": 3.5}, "field_resolution"),
    ],
)
def test_wrong_settings_are_named(scene, overrides, message):
    with pytest.raises(UserError, match=message):
        settings_for(auto_config(overrides), scene)


def test_near_and_far_are_settable(scene):
    config = resolve_auto(auto_config({"scene.near": 2.5, "sampler.auto.far": 5.5}), scene)
    bounded = with_bounds(scene, config.scene.near, config.scene.far)
    assert (float(bounded.geometry.near), float(bounded.geometry.far)) == (2.5, 5.5)
    assert geometry_with_points(with_bounds(scene, None, None)).near == scene.geometry.near
    # What auto writes down is what the scene had, bit for bit.
    plain = resolve_auto(auto_config(), scene)
    again = with_bounds(scene, plain.scene.near, plain.scene.far)
    assert again.geometry.near == scene.geometry.near and again.geometry.far == scene.geometry.far


# --- the explicit configuration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [name for name in configuration.FAMILIES["sampler"] if name != "auto"])
def test_every_key_exists_and_keeps_its_type(scene, sampler):
    config = auto_config({"sampler.auto.sampler": sampler})
    defaults, settings = flat_keys(default_config()), settings_for(config, scene)
    for setting in settings:
        default = defaults[setting.key]
        free = default is None or setting.key.startswith("network.")
        assert free or type(setting.value) is type(default), setting
    keys = [setting.key for setting in settings]
    assert len(keys) == len(set(keys)) and "train.batch_rays" in keys
    assert ("spacing" in default_config().sampler[sampler]) == (f"sampler.{sampler}.spacing" in keys)
    resolved = resolve_auto(config, scene)
    assert resolved.sampler.name == sampler
    assert {s.key: s.value for s in settings}.items() <= flat_keys(resolved).items()


@pytest.mark.parametrize("file", ["nerfjax", "demo", "instant_ngp", "nerf"])
def test_the_manifest_holds_what_was_chosen(scene, file):
    resolved = resolve_auto(auto_config(name=file), scene)
    assert "auto" not in (resolved.sampler.name, resolved.sampler[resolved.sampler.name].spacing)
    document = json.loads(json.dumps(configuration.config_to_json(resolved)))
    again = configuration.config_from_json(document)
    assert config_hash(again) == config_hash(resolved)
    assert resolve_auto(again, scene) is again  # it is explicit


def test_a_run_goes_on_with_what_it_began_with(scene):
    asked = {"train.batch_rays": 64}
    began = resolve_auto(auto_config(asked), scene)
    began.field.instant_ngp.max_resolution += 7  # as if other rules had chosen
    document = json.loads(json.dumps(configuration.config_to_json(began)))
    on = resolve_as_before(auto_config(asked), document)
    assert config_hash(on) == config_hash(began)
    # Asked for something else, or of a run that was explicit: it is not silently taken over.
    other = resolve_as_before(auto_config({"train.batch_rays": 128}), document)
    assert config_hash(other) != config_hash(began)
    for asked_now in ({}, {**asked, "sampler.auto.num_final": 9}):
        with pytest.raises(UserError, match="another configuration"):
            resolve_as_before(auto_config(asked_now), document)
    explicit = configuration.config_to_json(load_config("nerfjax"))
    assert resolve_as_before(auto_config(), explicit).sampler.name == "auto"
    assert resolve_as_before(load_config("nerfjax"), document).sampler.name == "proposal"


def test_unresolved_it_makes_no_sampler():
    with pytest.raises(UserError, match="only a scene decides"):
        configuration.bind("sampler", auto_config())


# --- real captures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "downscale"), [("blender_lego_200", 1), ("fox", 8), ("llff_beer", 8)])
def test_real_captures(capture, name, downscale):  # the fixture of conftest hides the function above
    scene = read_scene(str(capture(name)), downscale=downscale)
    values = {setting.key: setting.value for setting in settings_for(auto_config(), scene)}
    assert values["sampler.proposal.spacing"] == scene.geometry.spacing
    assert values["sampler.proposal.num_proposal"] == (64,) and values["sampler.proposal.num_final"] == 32
    assert 256 <= values["field.instant_ngp.max_resolution"] <= 4096
