"""The frequency encoding against Eq. 4 in float64, its layout and its gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nerfjax.encodings.frequency import frequency_encoding
from nerfjax.errors import UserError


@pytest.mark.parametrize(("low", "high", "include"), [(0, 10, True), (2, 5, False), (0, 16, False), (3, 3, True)])
def test_matches_equation_four_to_float32_precision_at_every_frequency(low, high, include):
    x = np.random.default_rng(0).uniform(-1, 1, (200, 3)).astype(np.float32)
    with jax.numpy_dtype_promotion("strict"):
        got = frequency_encoding(jnp.asarray(x), min_degree=low, max_degree=high, include_input=include)
    phase = np.pi * x.astype(np.float64)
    expected = [x] if include else []
    for degree in range(low, high):
        expected += [np.sin(2**degree * phase), np.cos(2**degree * phase)]
    np.testing.assert_allclose(got, np.concatenate(expected, axis=-1), atol=1e-6)


def test_gradient_is_the_derivative():
    gradient = jax.vmap(jax.jacfwd(lambda x: frequency_encoding(x[None], max_degree=4, include_input=False)))
    x = jnp.linspace(-0.9, 1.1, 41)
    expected = [2**k * np.pi * wave for k in range(4) for wave in (np.cos(2**k * np.pi * x), -np.sin(2**k * np.pi * x))]
    np.testing.assert_allclose(gradient(x), np.stack(expected, axis=-1), atol=2e-4)


def test_nothing_to_encode_is_empty_and_wrong_order_is_refused():
    assert frequency_encoding(jnp.ones((4, 3)), max_degree=0, include_input=False).shape == (4, 0)
    with pytest.raises(UserError, match="min_degree"):
        frequency_encoding(jnp.ones((4, 3)), min_degree=2, max_degree=1)
