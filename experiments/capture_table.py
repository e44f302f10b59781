"""Prints what every real capture is read as, as a table in Markdown.

    NERFJAX_TEST_DATA=captures make trial NAME=capture_table

For each set: the recognised format, images, sizes, camera models, bounds and the codes of the doctor's findings, or why
it is refused. All images are looked at: a few minutes; with the argument "quick", a few dozen of each set.
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))

from capture_rows import Row, captures, describe  # noqa: E402

HEADER = ("set", "format", "images", "sizes", "camera", "near – far", "findings, or the refusal")


def line(row: Row) -> str:
    """A row of the table."""
    common = sorted(row.sizes.items(), key=lambda item: -item[1])
    sizes = ", ".join(f"{w}×{h}" for (w, h), _ in common[:2])
    sizes += f" and {len(common) - 2} more" if len(common) > 2 else ""
    bounds = f"{row.near:.3g} – {row.far:.4g}" + (" (bounded)" if row.bounded else "") if row.images else ""
    words = row.refusal + (f" ({', '.join(row.codes)})" if row.codes else "") if row.refusal else ", ".join(row.codes)
    cells = (row.name, row.format or "–", str(row.images), sizes, ", ".join(row.models), bounds, words or "none")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def run() -> int:
    """Prints the table."""
    data = pathlib.Path(os.environ.get("NERFJAX_TEST_DATA", "data"))
    print("| " + " | ".join(HEADER) + " |\n" + "|---" * len(HEADER) + "|")
    for source in captures(data):
        print(line(describe(source, quick="quick" in sys.argv[1:])), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run())
