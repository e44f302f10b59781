"""mip-NeRF 360 (Barron et al. 2022): contracted space, off-axis encodings, 4 x 256 proposal and 8 x 1024 MLP.

    nerfjax train --config=configs/mipnerf360.py --config.scene.source=CAPTURE --workdir=RUN

For captures that stand in a box: --config=configs/mipnerf360.py:bounded (no opaque background, the scene's spacing).
Near is what the capture says (published: 0.2, in units of the cameras' extent). Annealing is as long as the run.

Expected (published): mean PSNR 27.69 dB on the nine scenes of the paper after 250,000 steps of 16,384 rays.
"""

from nerfjax.train.configuration import default_config


def get_config(arg=None):
    """Returns the config; ``arg`` "bounded" is for scenes inside a box."""
    unbounded = arg != "bounded"
    config = default_config()
    config.train.steps = 250_000
    config.train.batch_rays = 16_384
    config.train.checkpoint_every = 2500
    config.train.distortion_weight = 0.01
    config.scene.far = 1e6 if unbounded else None
    config.render.opaque_end = unbounded
    config.sampler.name = "proposal"
    config.sampler.proposal.num_proposal = (64, 64)
    config.sampler.proposal.num_final = 32
    config.sampler.proposal.share_network = True
    config.sampler.proposal.spacing = "disparity" if unbounded else "auto"
    config.sampler.proposal.interlevel = "mipnerf360"
    config.sampler.proposal.interlevel_weight = 1.0
    config.sampler.proposal.anneal_steps = config.train.get_ref("steps")
    config.sampler.proposal.anneal_slope = 10.0
    config.sampler.proposal.dilation_bias = 0.0025
    config.sampler.proposal.dilation_multiplier = 0.5
    config.sampler.proposal.padding = 0.0
    config.sampler.proposal.cover = False
    config.sampler.proposal.opaque_end = unbounded
    config.network.name = "integrated"
    config.field.name = "mipnerf360"
    config.background.name = "white"
    config.loss.name = "charbonnier"
    config.loss.charbonnier.padding = 1e-3
    config.optimizer.name = "adam"
    config.optimizer.adam.b2 = 0.999
    config.optimizer.adam.eps = 1e-6
    config.optimizer.adam.clip_norm = 1e-3
    config.schedule.name = "log_lerp"
    config.schedule.log_lerp.initial = 2e-3
    config.schedule.log_lerp.final = 2e-5
    config.schedule.log_lerp.delay_steps = 512
    config.schedule.log_lerp.delay_scale = 0.01
    return config
