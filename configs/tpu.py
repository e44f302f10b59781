"""For TPUs: a field and proposal networks without gathers, products in bfloat16; otherwise as ``instant_ngp``.

    nerfjax train --config=configs/tpu.py --config.scene.source=SCENE --workdir=RUN

The tables are lines and a small grid that are read by dense matrix products (``nerfjax/fields/tpu.py``). Nothing is
published of this field. Wanted: within 0.7 dB of ``instant_ngp`` on the demo scene at equal steps, at less than a
fifth of its time per step on a TPU v5e by XLA's estimate (``experiments/benchmarks/tpu_field.py``).
"""

from nerfjax.train.configuration import default_config


def get_config(arg=None):
    """Returns the config."""
    del arg
    config = default_config()
    config.precision = "bfloat16"
    config.train.steps = 20_000
    config.train.batch_rays = 4096
    config.sampler.name = "proposal"
    config.sampler.proposal.num_proposal = (128,)
    config.sampler.proposal.num_final = 64
    config.sampler.proposal.interlevel_weight = 0.1
    config.network.name = "separable"
    config.field.name = "tpu"
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
