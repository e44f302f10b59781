"""TensoRF (Chen et al. 2022): grids factorized into lines and planes, coarse to fine.

    nerfjax train --config=configs/tensorf.py --config.scene.source=SCENE --workdir=RUN
    nerfjax train --config=configs/tensorf.py:cp --config.scene.source=SCENE --workdir=RUN

The argument is "vm" (VM-192, the default) or "cp" (CP-384). Expected (published): mean PSNR 33.14 dB (VM-192) and
31.56 dB (CP-384) on the Blender scenes after 30,000 steps.

The published alpha mask, which leaves empty space out, is the occupancy grid of the sampler here; the box is not shrunk
to the mask, and the learning rate does not start again when the grids are upsampled.
"""

from nerfjax.errors import UserError
from nerfjax.train.configuration import default_config

UPSAMPLED_AT = (2000, 3000, 4000, 5500, 7000)
FINEST = {"vm": 300, "cp": 500}


def get_config(arg=None):
    """Returns the config.

    Args:
      arg: "vm" or "cp".
    """
    decomposition = arg or "vm"
    if decomposition not in FINEST:
        raise UserError("unknown decomposition", field="--config", found=arg, expected=", ".join(FINEST))
    config = default_config()
    config.train.steps = 30_000
    config.train.batch_rays = 4096
    config.train.rungs = 3
    config.train.l1_weight = 4e-5
    config.sampler.name = "occupancy"
    config.sampler.occupancy.samples_per_ray = 128.0
    config.field.name = "tensorf"
    config.field.tensorf.decomposition = decomposition
    config.field.tensorf.resolution = FINEST[decomposition]
    if decomposition == "cp":
        config.field.tensorf.density_components = 96
        config.field.tensorf.appearance_components = 288
    config.background.name = "white"
    config.loss.name = "l2"
    config.optimizer.name = "adam"
    config.optimizer.adam.b2 = 0.99
    config.optimizer.adam.eps = 1e-8
    config.optimizer.adam.table_rate = 20.0  # 0.02 for the grids, 0.001 for the networks
    config.schedule.name = "exponential"
    config.schedule.exponential.initial = 1e-3
    config.schedule.exponential.rate = 0.1
    # 128^3 vertices at first; their number grows by one factor from stage to stage.
    growth = (FINEST[decomposition] / 128) ** (1 / len(UPSAMPLED_AT))
    for index, until in enumerate(UPSAMPLED_AT):
        stage = {"until": until, "field": {"tensorf": {"resolution": round(128 * growth**index)}}}
        config.curriculum[f"stage{index}"] = {**stage, "l1_weight": 8e-5} if index == 0 else stage
    config.curriculum[f"stage{len(UPSAMPLED_AT)}"] = {}
    return config
