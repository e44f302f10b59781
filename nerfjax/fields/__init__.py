"""Fields: density and colour of space. The contract is in ``base``; ``FIELDS`` names the members."""

from nerfjax.fields.density_networks import (
    hashgrid_density,
    integrated_density,
    kplanes_density,
    mlp_density,
    multisampled_density,
    separable_density,
)
from nerfjax.fields.instant_ngp import instant_ngp
from nerfjax.fields.kplanes import kplanes
from nerfjax.fields.mipnerf import mipnerf
from nerfjax.fields.mipnerf360 import mipnerf360
from nerfjax.fields.nerf import nerf
from nerfjax.fields.plenoxels import plenoxels
from nerfjax.fields.tensorf import tensorf
from nerfjax.fields.tpu import tpu
from nerfjax.fields.zipnerf import zipnerf

FIELDS = {
    "nerf": nerf,
    "mipnerf": mipnerf,
    "mipnerf360": mipnerf360,
    "instant_ngp": instant_ngp,
    "zipnerf": zipnerf,
    "tensorf": tensorf,
    "kplanes": kplanes,
    "plenoxels": plenoxels,
    "tpu": tpu,
}
DENSITY_NETWORKS = {
    "hashgrid": hashgrid_density,
    "mlp": mlp_density,
    "integrated": integrated_density,
    "multisampled": multisampled_density,
    "kplanes": kplanes_density,
    "separable": separable_density,
}

__all__ = [
    "DENSITY_NETWORKS", "FIELDS", "hashgrid_density", "instant_ngp", "integrated_density", "kplanes",
    "kplanes_density", "mipnerf", "mipnerf360", "mlp_density", "multisampled_density", "nerf", "plenoxels",
    "separable_density", "tensorf", "tpu", "zipnerf",
]  # fmt: skip
