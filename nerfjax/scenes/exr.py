"""OpenEXR files: linear colour becomes the images of a capture, one channel becomes a depth.

The colour of an EXR file is linear light without bounds, with the primaries of sRGB and alpha multiplied in. Everywhere
else in nerfjax a colour is an encoded value in [0, 1] with straight alpha. The rule from one to the other: divide by
alpha, clip to [0, 1], encode by the sRGB curve, round to 16 bits. What is brighter than white is white; capture with
another exposure, or scale the files, where that is too much. Pictures are placed in the display window, which is what
the intrinsics belong to; what their data window leaves out is black (transparent, where there is alpha).

The package OpenEXR (extra ``[formats]``) is loaded when the first such file is met.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nerfjax.errors import UserError

EXTENSION = ".exr"
DEPTH_CHANNELS = ("Z", "V", "R", "Y")
_MAGIC = b"\x76\x2f\x31\x01"
_MAIN_LAYERS = ("combined", "beauty", "rgba", "image")  # of files with several, by renderers
_LARGEST_SIDE = 1 << 16
# The package prints what it finds wrong on standard output, where others may want one JSON document only.
_QUIET = threading.Lock()


def is_exr(path: Path) -> bool:
    """Says whether a file begins as EXR files do."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == _MAGIC
    except OSError:
        return False


def exr_size(path: Path) -> tuple[int, int]:
    """Returns the (width, height) of the display window, from the header."""
    with _opened(path, header_only=True, separate_channels=False) as file:
        return _window(file.header(), "displayWindow", path)[2:]


def decode_exr_color(path: Path) -> np.ndarray:
    """Decodes the colour to encoded sRGB values with straight alpha, [H, W, 3|4] uint16.

    Raises:
      UserError: the file cannot be read, has no colour, or a pixel of it is not a number.
    """
    with _opened(path) as file:
        header, channels = _layer(file, path)
        alpha = channels.pop("A", None)
        names = ("R", "G", "B") if "R" in channels else ("Y", "Y", "Y")
        color = np.stack([_placed(channels[name], header, path) for name in names], axis=-1)
        alpha = None if alpha is None else np.clip(_placed(alpha, header, path), 0.0, 1.0)
    broken = np.isnan(color).any(axis=-1) | (False if alpha is None else np.isnan(alpha))
    if broken.any():
        row, column = np.argwhere(broken)[0].tolist()
        raise UserError(
            "The EXR file holds pixels that are not numbers.", file=path, field=f"row {row}, column {column}",
            found=f"NaN in {int(broken.sum())} of {broken.size} pixels", expected="numbers",
            fix="render the picture again, or remove it together with its camera", code="image-unreadable",
        )  # fmt: skip
    if alpha is not None:
        color = color / np.where(alpha > 0, alpha, 1.0)[..., None]
    encoded = srgb_from_linear(np.clip(color, 0.0, 1.0))
    encoded = encoded if alpha is None else np.concatenate([encoded, alpha[..., None]], axis=-1)
    return (encoded * 65535 + 0.5).astype(np.uint16)


def decode_exr_depth(path: Path) -> np.ndarray:
    """Decodes the channel that holds depth to [H, W] float, in its stored numbers.

    Raises:
      UserError: the file cannot be read, or has no channel.
    """
    with _opened(path, otherwise=", or prepare with --no-depth") as file:
        for part in file.parts:
            plain: dict[str, Any] = {}
            for name, channel in part.channels.items():
                plain.setdefault(name.rsplit(".", 1)[-1], channel)
            for name in (*DEPTH_CHANNELS, *plain):
                if name in plain:
                    return _placed(plain[name], part.header, path)
    raise UserError("The EXR file has no channel.", file=path)


def srgb_from_linear(linear: np.ndarray) -> np.ndarray:
    """Encodes linear values in [0, 1]: 12.92 x below 0.0031308, else 1.055 x^(1/2.4) - 0.055 (IEC 61966-2-1)."""
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.maximum(linear, 1e-9) ** (1 / 2.4) - 0.055)


@contextlib.contextmanager
def _opened(
    path: Path, *, header_only: bool = False, separate_channels: bool = True, otherwise: str = ""
) -> Iterator[Any]:
    try:
        import OpenEXR
    except ImportError as error:
        raise missing_extra("EXR files", "OpenEXR", path, otherwise) from error
    try:
        with _QUIET, contextlib.redirect_stdout(sys.stderr):
            file = OpenEXR.File(str(path), separate_channels=separate_channels, header_only=header_only)
        with file:
            yield file
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, MemoryError, OSError) as error:
        raise UserError(
            "An image cannot be read.", file=path, found=f"{type(error).__name__}: {error}",
            fix="replace the file, or remove it together with its camera", code="image-unreadable",
        ) from error  # fmt: skip


def missing_extra(what: str, package: str, path: Path, otherwise: str = "") -> UserError:
    """Returns the error for a file that an optional package reads; ``otherwise`` is another way out."""
    return UserError(
        f"Reading {what} needs a package that is not installed.", file=path, found=f"no package {package}",
        fix=f"pip install 'nerfjax[formats]'{otherwise}",
    )  # fmt: skip


def _layer(file, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the header, and the channels R, G, B (or Y) and perhaps A, of the part and layer that is the picture."""
    layers = []
    for part in file.parts:
        for name in part.channels:
            prefix, dot, last = name.rpartition(".")
            if last not in ("R", "Y"):
                continue
            wanted = "RGBA" if last == "R" else "YA"
            found = {c: part.channels[prefix + dot + c] for c in wanted if prefix + dot + c in part.channels}
            if set(wanted) - {"A"} <= set(found) and not {f"{prefix}{dot}RY", f"{prefix}{dot}BY"} & set(part.channels):
                layers.append((prefix, part.header, found))
    if not layers:
        names = [name for part in file.parts for name in part.channels]
        raise UserError(
            "The EXR file has no colour.", file=path, field="channels", found=", ".join(names)[:120] or "none",
            expected="R, G, B (and A), or Y", fix="save the picture with these channels", code="image-unreadable",
        )  # fmt: skip
    rank = {"": -1} | {name: i for i, name in enumerate(_MAIN_LAYERS)}
    last_word = [prefix.rsplit(".", 1)[-1].lower() for prefix, *_ in layers]
    best = min(range(len(layers)), key=lambda i: rank.get(last_word[i], len(rank)))
    return layers[best][1], layers[best][2]


def _placed(channel, header: dict[str, Any], path: Path) -> np.ndarray:
    """Returns a channel as [H, W] float32 of the display window, 0 where the file has no data."""
    if channel.xSampling != 1 or channel.ySampling != 1:
        raise UserError("The EXR file has a channel of lower resolution.", file=path, found=channel.name)
    left, top, width, height = _window(header, "displayWindow", path)
    x, y, *_ = _window(header, "dataWindow", path)
    pixels = np.asarray(channel.pixels).astype(np.float32)
    x, y = x - left, y - top
    if (x, y) == (0, 0) and pixels.shape == (height, width):
        return pixels
    canvas = np.zeros((height, width), np.float32)
    rows = slice(max(y, 0), min(y + pixels.shape[0], height))
    columns = slice(max(x, 0), min(x + pixels.shape[1], width))
    if rows.start < rows.stop and columns.start < columns.stop:
        canvas[rows, columns] = pixels[rows.start - y : rows.stop - y, columns.start - x : columns.stop - x]
    return canvas


def _window(header: dict[str, Any], name: str, path: Path) -> tuple[int, int, int, int]:
    """Returns (left, top, width, height)."""
    low, high = (np.asarray(corner, np.int64) for corner in header[name])
    width, height = (high - low + 1).tolist()
    if not (0 < width <= _LARGEST_SIDE and 0 < height <= _LARGEST_SIDE):
        raise UserError("The EXR file has an impossible size.", file=path, field=name, found=f"{width}x{height}",
                        code="image-unreadable")  # fmt: skip
    return int(low[0]), int(low[1]), width, height
