"""NeRF (Mildenhall et al. 2020): frequency encoding, 8 x 256 MLPs, coarse and fine networks, 64 + 128 samples.

    nerfjax train --config=configs/nerf.py --config.scene.source=SCENE --workdir=RUN

Expected (published): mean PSNR 31.01 dB on the Blender scenes at 800 x 800 after a million steps.
"""

from nerfjax.train.configuration import default_config


def get_config(arg=None):
    """Returns the config."""
    del arg
    config = default_config()
    config.train.steps = 1_000_000
    config.train.batch_rays = 4096
    config.train.checkpoint_every = 5000
    config.sampler.name = "hierarchical"
    config.sampler.hierarchical.num_coarse = 64
    config.sampler.hierarchical.num_fine = 128
    config.sampler.hierarchical.reuse_coarse = True
    config.render.coarse_field = True
    config.field.name = "nerf"
    config.background.name = "white"
    config.loss.name = "l2"
    config.optimizer.name = "adam"
    config.optimizer.adam.b2 = 0.999
    config.optimizer.adam.eps = 1e-8
    config.schedule.name = "exponential"
    config.schedule.exponential.initial = 5e-4
    config.schedule.exponential.rate = 0.1
    config.schedule.exponential.steps = 500_000
    return config
