"""mip-NeRF (Barron et al. 2021): integrated encodings of conical frustums, one 8 x 256 MLP, two levels of 128 samples.

    nerfjax train --config=configs/mipnerf.py --config.scene.source=SCENE --workdir=RUN

Expected (published): mean PSNR 33.09 dB on the Blender scenes at 800 x 800 after a million steps.
"""

from nerfjax.train.configuration import default_config


def get_config(arg=None):
    """Returns the config."""
    del arg
    config = default_config()
    config.train.steps = 1_000_000
    config.train.batch_rays = 4096
    config.train.checkpoint_every = 5000
    config.train.coarse_weight = 0.1
    config.sampler.name = "hierarchical"
    config.sampler.hierarchical.num_coarse = 128
    config.sampler.hierarchical.num_fine = 128
    config.sampler.hierarchical.reuse_coarse = False
    config.sampler.hierarchical.blur = True
    config.sampler.hierarchical.padding = 0.01
    config.sampler.hierarchical.jitter = "stratum"
    config.sampler.hierarchical.randomize = "edges"
    config.field.name = "mipnerf"
    config.background.name = "white"
    config.loss.name = "l2"
    config.optimizer.name = "adam"
    config.optimizer.adam.b2 = 0.999
    config.optimizer.adam.eps = 1e-8
    config.schedule.name = "log_lerp"
    config.schedule.log_lerp.initial = 5e-4
    config.schedule.log_lerp.final = 5e-6
    config.schedule.log_lerp.delay_steps = 2500
    config.schedule.log_lerp.delay_scale = 0.01
    return config
