"""Numbers in text files, with errors that say where they stand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from nerfjax.errors import UserError
from nerfjax.scenes.base import shorten
from nerfjax.scenes.json_frames import LARGEST, all_plain, is_plain


class Tokens:
    """Numbers and words of a text file, one after the other, with errors that say where they stand."""

    def __init__(self, words: list[str], path: Path):
        self.words, self.path, self.position = words, path, 0

    def __len__(self) -> int:
        return len(self.words) - self.position

    def floats(self, count: int, field: str) -> np.ndarray:
        """Returns the next ``count`` numbers.

        Raises:
          UserError: the file ends before, or a word is no number.
        """
        words = self.words[self.position : self.position + count]
        if len(words) < count:
            raise UserError(
                "The file ends early.", file=self.path, field=field, found=f"{len(words)} numbers", expected=f"{count}"
            )
        self.position += count
        try:
            if not all(map(is_plain, words)):
                raise ValueError
            return np.array(words, np.float64)
        except ValueError:
            raise UserError(
                "A word stands where a number should.", file=self.path, field=field, found=shorten(words, 16)
            ) from None

    def count(self, field: str) -> int:
        """Returns the next number, which must be a whole one and not negative."""
        number = self.floats(1, field)[0]
        if not (0 <= number < 2**40 and number == math.floor(number)):
            raise UserError("A count is no count.", file=self.path, field=field, found=number, expected="0, 1, 2, …")
        return int(number)


def numbers(values: Any, count: int | None, *, path: Path, field: str) -> np.ndarray:
    """Returns a list from JSON or XML as a float64 vector.

    Args:
      values: a (nested) list of numbers, or text with numbers between spaces.
      count: how many there must be; None = any.
      path: the file, for messages.
      field: where in the file, for messages.

    Raises:
      UserError: not numbers, not finite, or not as many.
    """
    try:
        words = values.split() if isinstance(values, str) else values
        if not all_plain(words):
            raise ValueError
        array = np.array(words, np.float64).ravel()
    except (TypeError, ValueError, OverflowError):
        array = np.array([np.nan])
    if not (np.abs(array) <= LARGEST).all() or (count is not None and array.size != count):
        expected = "finite numbers" if count is None else f"{count} finite numbers"
        found = shorten([repr(values)[:100]])
        raise UserError("These are not the numbers expected.", file=path, field=field, found=found, expected=expected)
    return array


def real_numbers(values: Any) -> np.ndarray:
    """Returns an array of a binary file as float64.

    Raises:
      ValueError: it holds truth values, complex numbers or text.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"an array of {array.dtype}, not of real numbers")
    return array.astype(np.float64)


def read_text(path: Path) -> str:
    """Reads a text file; bytes that are no UTF-8 (in old file names) become question marks."""
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UserError("The file cannot be read.", file=path, found=error) from error


def starts_with(path: Path, size: int = 4096) -> str:
    """Returns the first ``size`` bytes of a file as text, "" where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(size).decode("utf-8-sig", errors="replace")
    except OSError:
        return ""
