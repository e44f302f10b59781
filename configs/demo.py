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
