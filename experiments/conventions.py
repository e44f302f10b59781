"""Shows that every capture is read in the right convention: 300 steps of the default method must learn to see it.

    NERFJAX_TEST_DATA=captures make trial NAME=conventions

For each capture: held-out PSNR after 300 steps at small resolution, against that of the mean colour of the training
images. With cameras read in a wrong convention a field can only memorise, and held-out views stay near the mean
colour; wanted is a gain of at least 4 dB. About fifteen minutes on two CPU cores.
"""

import os
import pathlib
import sys

import numpy as np

from nerfjax.evaluate import score_views, target_image
from nerfjax.train.build import build_experiment
from nerfjax.train.configuration import load_config

STEPS, WANTED = 300, 4.0
# Capture: longest side wanted, and what else has to be said about it.
CAPTURES = {
    "fox": (240, {}),
    "blender_lego_200": (100, {}),
    "ingp_fruit": (200, {}),
    "ingp_rigcams": (200, {}),
    "colmap_txt_lund_door": (200, {}),
    "llff_beer": (200, {}),
    "middlebury_temple": (200, {}),
    "blender_backslash68": (200, {"scene.convention": "opencv"}),
    "metashape_mvs20": (200, {}),
}


def mean_color_psnr(experiment) -> float:
    """Returns the held-out PSNR of an image of one colour, the mean of the training images."""
    scene = experiment.scene
    training = [target_image(frame, 1.0)[0].reshape(-1, 3).mean(axis=0) for frame in scene.subset("train").frames]
    color = np.mean(training, axis=0)
    held_out = [target_image(frame, 1.0)[0] for frame in scene.subset("test").frames]
    return float(np.mean([-10 * np.log10(np.mean((image - color) ** 2)) for image in held_out]))


def run_capture(folder: pathlib.Path, side: int, overrides: dict) -> tuple[float, float]:
    """Trains one capture; returns (held-out PSNR, that of the mean colour)."""
    from nerfjax.scenes import read_scene

    options = {"convention": overrides["scene.convention"]} if "scene.convention" in overrides else {}
    largest = max(max(frame.image.size) for frame in read_scene(str(folder), **options).frames)
    settings = {"scene.source": str(folder), "scene.downscale": max(1, round(largest / side)), "train.steps": STEPS}
    experiment = build_experiment(load_config("nerfjax", {**settings, **overrides}))
    state = experiment.init_state()
    dispatch = experiment.dispatch_for(10)
    for _ in range(STEPS // 10):
        state, _ = dispatch(state, experiment.data)
    return score_views(experiment, state, count=8)["eval/psnr"], mean_color_psnr(experiment)


def run() -> int:
    """Runs all captures (or those named) and prints a table; 1 if one falls short."""
    data = pathlib.Path(os.environ.get("NERFJAX_TEST_DATA", "data"))
    failed = 0
    print(f"{'capture':<22} {'PSNR':>6} {'mean colour':>12} {'gain':>6}", flush=True)
    for name in sys.argv[1:] or CAPTURES:
        psnr, mean = run_capture(data / name, *CAPTURES[name])
        failed += psnr - mean < WANTED
        print(f"{name:<22} {psnr:>6.2f} {mean:>12.2f} {psnr - mean:>6.2f}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(run())
