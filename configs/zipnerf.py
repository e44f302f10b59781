"""Zip-NeRF (Barron et al. 2023): multisampled hash grids, anti-aliased proposals, power-ladder spacing, grid decay.

    nerfjax train --config=configs/zipnerf.py --config.scene.source=SCENE --workdir=RUN
    nerfjax train --config=configs/zipnerf.py:one --config.scene.source=SCENE --workdir=RUN

After the colon come words, joined by commas: "one" is the published variant for one accelerator (an eighth of the rays
and of the learning rate, eight times the steps); "bounded" is for objects in front of a plain background, such as the
Blender scenes (the scene's own spacing, nothing opaque behind, a stronger decay of the grids). With much smaller tables
the decay is to be weakened in proportion: it is a mean, which pulls harder on each of fewer values.

Near is what the capture says (published: 0.2, in units of the cameras' extent). Annealing is as long as the run. The
distortion loss is measured on the ladder on which the rays are sampled; the authors' code has one of its own for it.

Expected (published): mean PSNR 28.54 dB on the nine mip-NeRF 360 scenes, 33.09 to 33.7 dB on the Blender scenes.
"""

from nerfjax.errors import UserError, did_you_mean
from nerfjax.train.configuration import default_config

VARIANTS = ("one", "bounded")


def get_config(arg=None):
    """Returns the config."""
    chosen = arg.split(",") if arg else []
    for word in chosen:
        if word not in VARIANTS:
            raise UserError(
                "zipnerf has no such variant", field="--config", found=word, expected=", ".join(VARIANTS),
                fix=did_you_mean(word, VARIANTS),
            )  # fmt: skip
    one, bounded = (variant in chosen for variant in VARIANTS)
    share = 8 if one else 1
    config = default_config()
    config.train.steps = 25_000 * share
    config.train.batch_rays = 65_536 // share
    config.train.checkpoint_every = 2500
    config.train.distortion_weight = 0.01
    config.train.decay_weight = 10.0 if bounded else 0.1
    config.scene.far = None if bounded else 1e6
    config.render.opaque_end = not bounded
    config.background.name = "white" if bounded else "random"
    config.sampler.name = "proposal"
    config.sampler.proposal.num_proposal = (64, 64)
    config.sampler.proposal.num_final = 32
    config.sampler.proposal.spacing = "auto" if bounded else "power"
    config.sampler.proposal.interlevel = "antialiased"
    config.sampler.proposal.interlevel_weight = 0.01
    config.sampler.proposal.pulse_widths = (0.03, 0.003)
    config.sampler.proposal.anneal_steps = config.train.get_ref("steps")
    config.sampler.proposal.padding = 0.0
    config.sampler.proposal.cover = False
    config.sampler.proposal.opaque_end = not bounded
    config.network.name = "multisampled"
    config.network.multisampled.levels = (6, 8)
    config.network.multisampled.max_resolution = (512, 2048)
    config.field.name = "zipnerf"
    config.loss.name = "charbonnier"
    config.optimizer.name = "adam"
    config.optimizer.adam.b2 = 0.99
    config.optimizer.adam.eps = 1e-15
    config.schedule.name = "log_lerp"
    config.schedule.log_lerp.initial = 1e-2 / share
    config.schedule.log_lerp.final = 1e-3 / share
    config.schedule.log_lerp.delay_steps = 2500 * share
    config.schedule.log_lerp.delay_scale = 1e-8
    return config
