"""The demo: a procedural scene, a hash grid, a proposal sampler; under two minutes on two CPU cores.

    nerfjax train --config=configs/demo.py --workdir=runs/demo

Expected: test PSNR above 30 dB at 128 x 128.
"""

from nerfjax.train.configuration import default_config


def get_config(arg=None):
    """Returns the config."""
    del arg
    config = default_config()
    config.scene.source = "analytic:toys"
    config.train.steps = 600
    config.train.batch_rays = 1024
    config.train.log_every = 50
    config.train.checkpoint_every = 300
    config.sampler.name = "proposal"
    config.sampler.proposal.num_proposal = (48,)
    config.sampler.proposal.num_final = 24
    # What the other samplers need to serve as well (``--config.sampler.name=…``) at this size.
    config.sampler.hierarchical.num_coarse = 32
    config.sampler.hierarchical.num_fine = 32
    config.sampler.occupancy.resolution = 32
    config.sampler.occupancy.diagonal_steps = 256
    config.sampler.occupancy.samples_per_ray = 32.0
    config.sampler.compose.resolution = 32
    config.sampler.compose.num_first = 64
    config.sampler.compose.num_proposal = (48,)
    config.sampler.compose.num_final = 24
    config.sampler.adaptive.num_proposal = (48,)
    config.sampler.adaptive.samples_per_ray = 24.0
    config.sampler.neus.num_uniform = 32
    config.sampler.neus.num_importance = 32
    config.network.hashgrid.max_resolution = 64
    config.field.name = "instant_ngp"
    config.field.instant_ngp.levels = 8
    config.field.instant_ngp.features = 4
    config.field.instant_ngp.log2_size = 16
    config.field.instant_ngp.max_resolution = 256
    config.background.name = "white"
    config.optimizer.adam.weight_decay = 1e-6
    config.schedule.name = "log_lerp"
    config.schedule.log_lerp.initial = 1e-2
    config.schedule.log_lerp.final = 1e-3
    config.schedule.log_lerp.delay_steps = 50
    return config
