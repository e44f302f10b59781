"""Pixel samplers: which rays to shoot. The contract is in ``base``; a new member is one file and one row here."""

from nerfjax.pixels.base import PixelContent, PixelSampler, image_table
from nerfjax.pixels.center_crop import center_crop
from nerfjax.pixels.error_guided import error_guided
from nerfjax.pixels.guided import edges, foreground, masked
from nerfjax.pixels.low_discrepancy import low_discrepancy
from nerfjax.pixels.patches import patches
from nerfjax.pixels.per_image import per_image
from nerfjax.pixels.solid_angle import solid_angle
from nerfjax.pixels.stratified import stratified
from nerfjax.pixels.uniform import uniform

PIXELS = {
    "uniform": uniform,
    "stratified": stratified,
    "low_discrepancy": low_discrepancy,
    "per_image": per_image,
    "patches": patches,
    "center_crop": center_crop,
    "masked": masked,
    "foreground": foreground,
    "edges": edges,
    "error_guided": error_guided,
    "solid_angle": solid_angle,
}

__all__ = [
    "PIXELS", "PixelContent", "PixelSampler", "center_crop", "edges", "error_guided", "foreground", "image_table",
    "low_discrepancy", "masked", "patches", "per_image", "solid_angle", "stratified", "uniform",
]  # fmt: skip
