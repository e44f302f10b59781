"""Fields: density and colour of space. The contract is in ``base``; ``FIELDS`` names the members."""

from nerfjax.fields.density_networks import hashgrid_density, mlp_density
from nerfjax.fields.instant_ngp import instant_ngp
from nerfjax.fields.nerf import nerf

FIELDS = {"nerf": nerf, "instant_ngp": instant_ngp}
DENSITY_NETWORKS = {"hashgrid": hashgrid_density, "mlp": mlp_density}

__all__ = ["DENSITY_NETWORKS", "FIELDS", "hashgrid_density", "instant_ngp", "mlp_density", "nerf"]
