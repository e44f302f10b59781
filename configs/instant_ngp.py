"""Instant NGP (Müller et al. 2022): a hash grid of 16 levels, small MLPs, exponential density, random background.

    nerfjax train --config=configs/instant_ngp.py --config.scene.source=SCENE --workdir=RUN

The published method marches an occupancy grid; here the samples come from proposal networks (any member of
``config.sampler`` can take their place). Expected (published, with occupancy): mean PSNR 33.18 dB on the
Blender scenes.
"""

from nerfjax.train.configuration import default_config


def get_config(arg=None):
    """Returns the config."""
    del arg
    config = default_config()
    config.train.steps = 20_000
    config.train.batch_rays = 4096
    config.sampler.name = "proposal"
    config.sampler.proposal.num_proposal = (128,)
    config.sampler.proposal.num_final = 64
    config.sampler.proposal.interlevel_weight = 0.1
    config.field.name = "instant_ngp"
    config.background.name = "random"
    config.loss.name = "l2"
    config.optimizer.name = "adam"
    config.optimizer.adam.b2 = 0.99
    config.optimizer.adam.eps = 1e-15
    config.optimizer.adam.weight_decay = 1e-6
    config.schedule.name = "exponential"
    config.schedule.exponential.initial = 1e-2
    config.schedule.exponential.rate = 0.033
    return config
