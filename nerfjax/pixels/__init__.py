"""Pixel samplers: which rays to shoot. The contract is in ``base``; a new member is one file and one row here."""

from nerfjax.pixels.base import PixelSampler, image_table
from nerfjax.pixels.uniform import uniform

PIXELS = {
    "uniform": uniform,
}

__all__ = ["PIXELS", "PixelSampler", "image_table", "uniform"]
