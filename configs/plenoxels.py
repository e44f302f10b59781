"""Plenoxels (Fridovich-Keil, Yu et al. 2022): a dense grid of densities and spherical harmonics, no network.

    nerfjax train --config=configs/plenoxels.py --config.scene.source=SCENE --workdir=RUN

Expected (published, with a sparse grid): mean PSNR 31.71 dB on the Blender scenes after 128,000 steps. The finest grid
has 512^3 vertices of 28 numbers, 15 GB, and the gradient and the optimizer's two moments are as large each; for smaller
devices ``:small`` stops at 256^3, and for CPUs there is ``:tiny``, 128^3.

The published RMSProp is Adam without a first moment here. The rates of densities and of harmonics are in the ratio of
the field's density gain; both decay as the harmonics' does.
"""

from nerfjax.errors import UserError
from nerfjax.train.configuration import default_config

RESOLUTIONS = {"full": (256, 512), "small": (128, 256), "tiny": (64, 128)}


def get_config(arg=None):
    """Returns the config.

    Args:
      arg: "full", "small" or "tiny".
    """
    size = arg or "full"
    if size not in RESOLUTIONS:
        raise UserError("unknown size", field="--config", found=arg, expected=", ".join(RESOLUTIONS))
    coarse, fine = RESOLUTIONS[size]
    config = default_config()
    config.train.steps = 128_000
    config.train.batch_rays = 5000
    config.train.rungs = 2
    config.train.tv_weight = 1e-5
    config.train.color_tv_weight = 1e-3
    config.sampler.name = "occupancy"
    # Two steps to a voxel.
    config.sampler.occupancy.diagonal_steps = round(2 * 3**0.5 * fine)
    config.sampler.occupancy.samples_per_ray = 128.0
    config.field.name = "plenoxels"
    config.field.plenoxels.resolution = fine
    config.background.name = "white"
    config.loss.name = "l2"
    config.optimizer.name = "adam"
    config.optimizer.adam.b1 = 0.0
    config.optimizer.adam.b2 = 0.95
    config.optimizer.adam.eps = 1e-8
    config.schedule.name = "log_lerp"
    config.schedule.log_lerp.initial = 1e-2
    config.schedule.log_lerp.final = 5e-6
    config.schedule.log_lerp.steps = 250_000
    config.curriculum.stage0 = {
        "until": 38_400,
        "field": {"plenoxels": {"resolution": coarse}},
        "sampler": {"occupancy": {"diagonal_steps": round(2 * 3**0.5 * coarse)}},
    }
    config.curriculum.stage1 = {}
    return config
