"""The best default: a hash grid of wide rows, proposal sampling, contraction for unbounded captures.

nerfjax train --config=configs/nerfjax.py --config.scene.source=CAPTURE --config.scene.downscale=8 --workdir=RUN
"""

from nerfjax.train.configuration import default_config


def get_config(arg=None):
    """Returns the config."""
    del arg
    config = default_config()
    config.train.steps = 5000
    config.train.batch_rays = 2048
    config.train.log_every = 50
    config.train.checkpoint_every = 500
    config.train.distortion_weight = 0.002
    config.sampler.name = "proposal"
    config.sampler.proposal.num_proposal = (64,)
    config.sampler.proposal.num_final = 32
    config.sampler.proposal.interlevel_weight = 1.0
    config.sampler.proposal.anneal_steps = 300
    config.sampler.proposal.dilation_bias = 0.0
    config.sampler.proposal.dilation_multiplier = 0.0
    config.network.hashgrid.max_resolution = 128
    config.field.name = "instant_ngp"
    config.field.instant_ngp.levels = 8
    config.field.instant_ngp.features = 4
    config.field.instant_ngp.log2_size = 18
    config.field.instant_ngp.max_resolution = 2048
    config.background.name = "random"
    config.loss.name = "charbonnier"
    config.optimizer.adam.weight_decay = 1e-6
    config.schedule.name = "log_lerp"
    config.schedule.log_lerp.initial = 1e-2
    config.schedule.log_lerp.final = 3e-4
    config.schedule.log_lerp.delay_steps = 100  # dark captures turn opaque at the near plane without
    return config
