"""K-Planes, hybrid, of static scenes (Fridovich-Keil et al. 2023): products of planes at three scales, small MLPs.

    nerfjax train --config=configs/kplanes.py --config.scene.source=SCENE --workdir=RUN

Expected (published): mean PSNR 32.36 dB on the Blender scenes after 30,000 steps.
"""

from nerfjax.train.configuration import default_config


def get_config(arg=None):
    """Returns the config."""
    del arg
    config = default_config()
    config.train.steps = 30_000
    config.train.batch_rays = 4096
    # Published: 1e-4 of twice the mean squared differences, for the field and its proposal networks alike.
    config.train.tv_weight = 2e-4
    config.sampler.name = "proposal"
    config.sampler.proposal.num_proposal = (256, 128)
    config.sampler.proposal.num_final = 48
    config.sampler.proposal.interlevel_weight = 1.0
    config.sampler.proposal.dilation_bias = 0.0
    config.sampler.proposal.dilation_multiplier = 0.0
    config.network.name = "kplanes"
    config.network.kplanes.resolution = (128, 256)
    config.field.name = "kplanes"
    config.background.name = "white"
    config.loss.name = "l2"
    config.optimizer.name = "adam"
    config.optimizer.adam.b2 = 0.999
    config.optimizer.adam.eps = 1e-15
    config.schedule.name = "cosine"
    config.schedule.cosine.initial = 1e-2
    config.schedule.cosine.warmup = 512
    return config
