"""Images of a capture: decoded lazily by Pillow, converted to RGB(A), resized by area averaging.

An image is [H, W, C] of uint8 or uint16 with C = 3 (RGB) or 4 (RGB with straight alpha), encoded (sRGB) values
as in the file. Sizes are (width, height) in pixels. OpenEXR files hold linear values and become images by the rule of
``exr.py``; HEIC files are decoded by Pillow's plugin, which turns them upright as phones mean them. Both need the extra
``[formats]``, and both are recognised by their content: phones name HEIC files .jpg as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from nerfjax.errors import UserError
from nerfjax.scenes import exr

_HEIC = (".heic", ".heif", ".hif")
EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", *_HEIC, exr.EXTENSION)
_HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
# What Pillow raises on files that are damaged, no images, or larger than it dares to decode.
_BROKEN = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)
_EXIF_ORIENTATION = 0x0112
_TRANSPOSING = (5, 6, 7, 8)
_EXIF_TO_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class ImageReference:
    """An image that is decoded when it is read.

    Attributes:
      path: the file; None for an image that ``loader`` makes.
      size: (width, height) that ``read`` returns, pixels.
      loader: makes the image [H, W, C] where there is no file.
      identity: what stands for the bytes of an image without a file in the scene's fingerprint; beside a file, what
        ``loader`` makes of it.
      upright: whether the EXIF orientation is applied (only where the camera's size asks for it).
    """

    path: Path | None
    size: tuple[int, int]
    loader: Callable[[], np.ndarray] | None = None
    identity: str = ""
    upright: bool = False

    def read(self, size: tuple[int, int] | None = None) -> np.ndarray:
        """Decodes the image.

        Args:
          size: (width, height) wanted; by default the reference's own size.

        Returns:
          [H, W, C] uint8 or uint16, C = 3 (RGB) or 4 (straight alpha).

        Raises:
          UserError: the file is missing, truncated or not an image.
        """
        image = self.loader() if self.loader is not None else decode_image(self.path, upright=self.upright)
        return resize_area(image, size or self.size)

    def resized(self, size: tuple[int, int]) -> ImageReference:
        """Returns the same image at another size."""
        return replace(self, size=size)

    def digest(self) -> bytes:
        """Returns the SHA-256 of the file's bytes and of ``identity``, whichever there are; the path does not enter."""
        if self.path is None and self.identity.startswith("sha256:"):  # the digest itself, of a file read elsewhere
            return bytes.fromhex(self.identity.removeprefix("sha256:"))
        if self.path is None:
            return hashlib.sha256(self.identity.encode()).digest()
        try:
            with open(self.path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
            return hashlib.sha256(digest + self.identity.encode()).digest() if self.identity else digest
        except OSError as error:
            raise _unreadable(self.path, error) from error


def open_image(path: Path, expected: tuple[float | int, float | int] | None = None) -> ImageReference:
    """Reads an image file's header only.

    The stored orientation is kept unless only the EXIF-rotated one has the shape of the camera: structure from
    motion works on stored pixels, and viewers rotate.

    Args:
      path: the file.
      expected: (width, height) of the camera, pixels, where it is known.
    """
    if exr.is_exr(path):
        return ImageReference(path, exr.exr_size(path))
    try:
        with _opened(path) as image:
            width, height = image.size
            orientation = _orientation(image)
    except _BROKEN as error:
        raise _unreadable(path, error) from error
    upright = False
    if expected is not None and orientation in _TRANSPOSING and width != height:
        stored, turned = (abs(expected[0] * b / (expected[1] * a) - 1) for a, b in ((width, height), (height, width)))
        upright = turned < 0.01 < stored
    return ImageReference(path, (height, width) if upright else (width, height), upright=upright)


def only_photos(files: Iterable[Path]) -> list[Path]:
    """Leaves out EXR files beside a photo of the same name: they are its depth, or another of a renderer's passes."""
    files = list(files)
    photos = {file.with_suffix("") for file in files if file.suffix.lower() != exr.EXTENSION}
    return [file for file in files if file.suffix.lower() != exr.EXTENSION or file.with_suffix("") not in photos]


def needs_extra(path: Path) -> bool:
    """Says whether a file is of a kind that an optional package reads (and other programs may not)."""
    return exr.is_exr(path) or _is_heic(path)


def _opened(path: Path) -> Image.Image:
    if _is_heic(path):
        try:
            import pillow_heif
        except ImportError as error:
            raise exr.missing_extra("HEIC photos", "pillow-heif", path) from error
        pillow_heif.register_heif_opener()
    return Image.open(path)


def _is_heic(path: Path) -> bool:
    with open(path, "rb") as file:
        start = file.read(12)
    return start[4:8] == b"ftyp" and start[8:] in _HEIC_BRANDS


def _orientation(image: Image.Image) -> int:
    # Pillow would decode a whole PNG to look for EXIF behind its pixels.
    late = image.format == "PNG" and "exif" not in image.info
    return 1 if late else image.getexif().get(_EXIF_ORIENTATION, 1)


def decode_image(path: Path, *, upright: bool = False) -> np.ndarray:
    """Decodes a file to [H, W, 3|4]: grey, palette, CMYK and 16-bit grey images become RGB or RGBA."""
    if exr.is_exr(path):
        return exr.decode_exr_color(path)
    try:
        with _opened(path) as image:
            if upright:
                turn = _EXIF_TO_TRANSPOSE.get(_orientation(image))
                image = image.transpose(turn) if turn is not None else image
            return _to_rgb(image)
    except _BROKEN as error:
        raise _unreadable(path, error) from error


def _to_rgb(image: Image.Image) -> np.ndarray:
    if image.mode == "F":
        return np.repeat(_grey_from_float(np.asarray(image))[..., None], 3, axis=-1)
    if image.mode.startswith("I"):
        grey = np.asarray(image)
        limit = 65535 if grey.size and grey.max() > 255 else 255
        grey = np.clip(grey, 0, limit).astype(np.uint16 if image.mode != "I" or limit > 255 else np.uint8)
        return np.repeat(grey[..., None], 3, axis=-1)
    has_alpha = image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    return np.array(image.convert("RGBA" if has_alpha else "RGB"))


def _grey_from_float(grey: np.ndarray) -> np.ndarray:
    """Returns uint16 of floats whose range, 0 to 1, to 255 or to 65535, is the smallest that holds them.

    Raises:
      ValueError: a pixel is not a number.
    """
    if np.isnan(grey).any():
        raise ValueError(f"{int(np.isnan(grey).sum())} of {grey.size} pixels are not numbers")
    limit = next((limit for limit in (1.0, 255.0) if grey.max(initial=0.0) <= limit), 65535.0)
    return (np.clip(grey, 0.0, limit) * (65535.0 / limit) + 0.5).astype(np.uint16)


def resize_area(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resizes by averaging over each new pixel's area.

    The encoded values are averaged, premultiplied by alpha, as the published downscaled sets do; the result is
    rounded to the image's own type.

    Args:
      image: [H, W, 3|4] uint8 or uint16.
      size: (width, height) wanted.
    """
    height, width = image.shape[:2]
    if (width, height) == tuple(size):
        return image
    values = image.astype(np.float32)
    limit = float(np.iinfo(image.dtype).max)
    if image.shape[-1] == 4:
        values[..., :3] *= values[..., 3:] / limit
    values = _average_axis(_average_axis(values, size[1], 0), size[0], 1)
    if image.shape[-1] == 4:
        values[..., :3] *= limit / np.maximum(values[..., 3:], 1e-6)
    return np.clip(values + 0.5, 0, limit).astype(image.dtype)


def _average_axis(values: np.ndarray, new: int, axis: int) -> np.ndarray:
    old = values.shape[axis]
    if new == old:
        return values
    if old % new == 0:
        shape = (*values.shape[:axis], new, old // new, *values.shape[axis + 1 :])
        return values.reshape(shape).mean(axis=axis + 1)
    edges = np.arange(new + 1) * (old / new)
    start, stop = edges[:-1, None], edges[1:, None]
    pixel = np.arange(old)[None]
    overlap = np.clip(np.minimum(stop, pixel + 1) - np.maximum(start, pixel), 0, None) / (stop - start)
    return np.moveaxis(np.tensordot(overlap.astype(np.float32), values, axes=(1, axis)), 0, axis)


def downscaled_size(size: tuple[int, int], factor: float | int) -> tuple[int, int]:
    """Returns (width, height) divided by ``factor``, rounded half up, at least one pixel."""
    if not factor >= 1:
        raise UserError("The downscale factor must be at least 1.", field="scene.downscale", found=factor)
    width, height = (max(1, int(side / factor + 0.5)) for side in size)
    return width, height


def has_transparency(reference: ImageReference) -> bool:
    """Says whether the image has pixels that are more than half transparent."""
    image = reference.read()
    return image.shape[-1] == 4 and bool((image[..., 3] < np.iinfo(image.dtype).max // 2).any())


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(
        "An image cannot be read.",
        file=path,
        found=f"{type(error).__name__}: {error}",
        fix="replace the file, or remove it together with its camera",
        code="image-unreadable",
    )
