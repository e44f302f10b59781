"""Skips empty space in a trained field, and shows that nothing is lost: occupancy against 1024 dense steps.

    make demo && make trial NAME=occupancy_accuracy        (or: python experiments/occupancy_accuracy.py RUN)

The field of a trained run is rendered twice at its test views: with 1024 stratified intervals of equal length, and by
an occupancy grid that is refreshed from the same field, in steps of 1/1024 of the box's diagonal, in rounds that end
with each ray's transmittance. Wanted: test PSNR within 0.05 dB of each other, with at most a fifth of the evaluations.
A few minutes on two CPU cores.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

from nerfjax.evaluate import background_level, target_image
from nerfjax.image_metrics import psnr, quantize_8bit
from nerfjax.renderer import make_image_renderer, make_renderer
from nerfjax.samplers import occupancy, stratified
from nerfjax.train import configuration
from nerfjax.train.run import load_run

STEPS, RESOLUTION, REFRESHES = 1024, 128, 24
WITHIN, SHARE = 0.05, 0.2


def renderers(run, geometry):
    """Returns {name: render_image} of the run's field with either sampler, and the grid's share of occupied cells."""
    field = configuration.bind("field", run.config, geometry=geometry, precision=run.config.precision)
    background = configuration.bind("background", run.config)
    params = {**run.state.render_params, "sampler": {}}
    made = {}
    dense = make_renderer(field, stratified(num_samples=STEPS, deterministic=True), background)
    made["dense"] = make_image_renderer(dense, geometry, memory_bytes=2**30), params, {}
    sampler = occupancy(geometry=geometry, resolution=RESOLUTION, diagonal_steps=STEPS, deterministic=True)
    marching = make_renderer(field, sampler, background)

    @jax.jit
    def refreshed(aux, number):
        return marching.refresh(jax.random.key(number), params, aux, step=16 * number)[1]

    aux = sampler.init(jax.random.key(0), geometry).aux
    for number in range(REFRESHES):
        aux = refreshed(aux, jnp.int32(number))
    made["occupancy"] = make_image_renderer(marching, geometry, memory_bytes=2**30), params, aux
    return made


def main() -> int:
    """Renders, measures and prints; 1 if a target is missed."""
    run = load_run(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    scene, geometry = run.experiment.scene, run.experiment.parts.geometry
    frames, cameras = scene.subset("test")
    level = background_level(run.config, scene.background)
    scores: dict[str, list[float]] = {}
    evaluations: dict[str, list[float]] = {}
    for name, (render, params, aux) in renderers(run, geometry).items():
        for row, frame in enumerate(frames):
            image = render(params, aux, cameras[np.array([row])])
            target = target_image(frame, level)[0]
            scores.setdefault(name, []).append(float(psnr(quantize_8bit(image.color), target)))
            evaluations.setdefault(name, []).append(image.evaluations)
        print(
            f"{name:<10} PSNR {np.mean(scores[name]):.3f}  evaluations per ray {np.mean(evaluations[name]):.1f}",
            flush=True,
        )
    difference = np.mean(scores["occupancy"]) - np.mean(scores["dense"])
    share = np.mean(evaluations["occupancy"]) / np.mean(evaluations["dense"])
    print(f"difference {difference:+.3f} dB, share of evaluations {share:.4f}")
    return int(abs(difference) > WITHIN or share > SHARE)


if __name__ == "__main__":
    sys.exit(main())
