"""What makes a density of a network's output."""

from __future__ import annotations

from collections.abc import Callable

from flax import linen as nn

from nerfjax.errors import UserError, did_you_mean
from nerfjax.numerics import safe_exp
from nerfjax.types import Array

# Both are positive and have a gradient everywhere; exp reaches high densities sooner, softplus is calmer.
DENSITY_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"softplus": nn.softplus, "exp": safe_exp}


def density_activation(name: str) -> Callable[[Array], Array]:
    """Returns the activation of that name.

    Raises:
      UserError: there is no such activation.
    """
    if name not in DENSITY_ACTIVATIONS:
        raise UserError(
            "there is no such density activation", field="density_activation", found=repr(name),
            expected=", ".join(DENSITY_ACTIVATIONS), fix=did_you_mean(name, DENSITY_ACTIVATIONS),
        )  # fmt: skip
    return DENSITY_ACTIVATIONS[name]
