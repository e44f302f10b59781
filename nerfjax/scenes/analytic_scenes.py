"""The procedural scenes: what stands in them. World +z is up; object scenes fit into [-1.5, 1.5]³.

Each has detail at several scales: the shapes, their patterns (down to about eight cycles per unit) and rods or beads
of a few hundredths of a unit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from nerfjax.scenes.looks import Builder, checker, plain, rotation_about, stripes, with_waves
from nerfjax.scenes.primitives import Primitives

SOLID = 80.0  # density of what looks opaque: 95 % within 4 hundredths of a unit

RED, ORANGE, YELLOW = (0.86, 0.20, 0.18), (0.95, 0.55, 0.15), (0.98, 0.83, 0.28)
GREEN, TEAL, BLUE = (0.24, 0.62, 0.33), (0.10, 0.60, 0.62), (0.16, 0.36, 0.76)
PURPLE, PINK, CREAM = (0.52, 0.28, 0.68), (0.93, 0.52, 0.66), (0.96, 0.93, 0.85)
DARK, GREY, BROWN = (0.16, 0.17, 0.22), (0.60, 0.62, 0.66), (0.50, 0.33, 0.20)


def spheres() -> Primitives:
    """A patterned ball among smaller ones, beads on top, and a ball of coloured glass."""
    b = Builder()
    b.ball((0, 0, 0), 0.72, SOLID, with_waves(checker(BLUE, CREAM, 0.9, "xyz"), stripes(RED, CREAM, (0, 0, 4))))
    looks = [
        stripes(RED, CREAM, (0, 0, 5)),
        checker(ORANGE, DARK, 1.6, "xyz"),
        stripes(GREEN, YELLOW, (4, 4, 0)),
        checker(PURPLE, PINK, 2.2, "xyz"),
        stripes(TEAL, CREAM, (3, 0, 5)),
        plain(YELLOW),
        checker(DARK, CREAM, 2.4, "xyz"),
    ]
    for i, look in enumerate(looks):
        angle = 2 * np.pi * i / len(looks)
        radius = 0.17 + 0.045 * ((3 * i) % 4)
        center = (1.02 * np.cos(angle), 1.02 * np.sin(angle), -0.66 + radius)
        b.ball(center, radius, SOLID, look)
    for i in range(9):
        angle = 2 * np.pi * i / 9
        center = (0.42 * np.cos(angle), 0.42 * np.sin(angle), 0.66)
        b.ball(center, 0.075, SOLID, plain([RED, YELLOW, TEAL][i % 3]), shade=0.25)
    b.ball((0, 0, 0.98), 0.26, 6.0, stripes(PINK, PURPLE, (0, 0, 2)))
    return b.build()


def boxes() -> Primitives:
    """A heap of patterned blocks on a board, with slim towers."""
    b = Builder()
    b.box((0, 0, -0.80), (0.9, 0.9, 0.07), SOLID, checker(CREAM, GREY, 1.25, "xy"))
    tilt = rotation_about("z", 25)
    b.box((0.05, 0.0, -0.33), (0.46, 0.46, 0.40), SOLID, stripes(RED, CREAM, (0, 0, 3)), rotation=tilt)
    b.box(
        (0.05, 0.0, 0.27),
        (0.32, 0.32, 0.20),
        SOLID,
        checker(BLUE, YELLOW, 2.0, "xyz"),
        rotation=rotation_about("z", 55),
    )
    cube = rotation_about("x", 45) @ rotation_about("y", 35.26)
    b.box((0.05, 0.0, 0.72), 0.19, SOLID, stripes(PURPLE, PINK, (3, 3, 3)), rotation=cube)
    b.box((-0.74, -0.62, -0.10), (0.15, 0.15, 0.63), SOLID, stripes(TEAL, CREAM, (0, 0, 4)))
    b.box((0.72, 0.70, -0.25), (0.17, 0.17, 0.48), SOLID, checker(ORANGE, DARK, 3.0, "xyz"))
    b.box((-0.68, 0.68, -0.53), 0.20, SOLID, checker(GREEN, CREAM, 2.5, "xyz"), rotation=rotation_about("z", 40))
    b.box(
        (0.72, -0.50, -0.60),
        (0.24, 0.11, 0.13),
        SOLID,
        stripes(DARK, YELLOW, (6, 0, 0)),
        rotation=rotation_about("z", -30),
    )
    for i in range(6):
        x = -0.42 + 0.2 * i
        b.box(
            (x, -0.88, -0.73 + 0.05 * (i + 1)),
            (0.05, 0.05, 0.05 * (i + 1)),
            SOLID,
            plain([RED, ORANGE, YELLOW, GREEN, BLUE, PURPLE][i]),
        )
    return b.build()


def wires() -> Primitives:
    """Two grids of fine wires in a frame of rods, with a ball between them."""
    b = Builder()
    posts = [(x, y) for x in (-0.95, 0.95) for y in (-0.7, 0.7)]
    for x, y in posts:
        b.rod((x, y, -0.9), (x, y, 0.9), 0.045, SOLID, stripes(RED, CREAM, (0, 0, 3)))
    for y in (-0.7, 0.7):
        for z in (-0.85, 0.85):
            b.rod((-0.95, y, z), (0.95, y, z), 0.035, SOLID, plain(DARK))
    for i in range(9):
        x = -0.76 + 0.19 * i
        b.rod((x, -0.7, -0.85), (x, -0.7, 0.85), 0.014, 2 * SOLID, stripes(BLUE, TEAL, (0, 0, 2)))
        z = -0.68 + 0.17 * i
        b.rod((-0.95, 0.7, z), (0.95, 0.7, z), 0.014, 2 * SOLID, stripes(ORANGE, BROWN, (2, 0, 0)))
    b.ball((0, 0, 0), 0.45, SOLID, checker(GREEN, CREAM, 1.5, "xyz"))
    b.rod((-0.9, -0.65, 0.8), (0.9, 0.65, -0.8), 0.022, SOLID, stripes(PURPLE, YELLOW, (3, 2, -3)))
    b.rod((0.9, -0.65, 0.8), (-0.9, 0.65, -0.8), 0.022, SOLID, stripes(PINK, DARK, (3, -2, 3)))
    return b.build()


def fog() -> Primitives:
    """Overlapping clouds of thin, coloured fog around small solid cores."""
    b = Builder()
    b.ball((0, 0, 0), (1.1, 0.9, 0.8), 0.8, stripes(BLUE, TEAL, (0.4, 0, 0.3)), shade=0)
    b.ball((0.45, 0.30, 0.25), 0.62, 1.6, stripes(PINK, ORANGE, (0, 0.6, 0.6)), shade=0)
    b.ball((-0.50, -0.25, 0.15), (0.5, 0.6, 0.7), 1.2, stripes(PURPLE, BLUE, (0.8, 0.8, 0)), shade=0)
    b.box((0, 0, -0.75), (0.95, 0.95, 0.15), 2.5, checker(GREY, CREAM, 0.8, "xy"), shade=0)
    b.ball((0.45, 0.30, 0.25), 0.20, SOLID, checker(RED, YELLOW, 2.5, "xyz"))
    b.ball((-0.50, -0.25, 0.15), 0.16, SOLID, stripes(DARK, CREAM, (0, 0, 7)))
    b.box((0.05, -0.55, -0.20), 0.13, SOLID, checker(GREEN, CREAM, 3.5, "xyz"), rotation=rotation_about("z", 30))
    b.rod((-0.2, 0.55, -0.6), (-0.2, 0.55, 0.9), 0.025, SOLID, stripes(RED, CREAM, (0, 0, 4)))
    return b.build()


def slabs() -> Primitives:
    """A stack of plates, solid and translucent in turn, pierced by rods; one plate leans on it."""
    b = Builder()
    colors = [(RED, CREAM), (TEAL, BLUE), (YELLOW, ORANGE), (PURPLE, PINK), (GREEN, CREAM)]
    for i, (one, other) in enumerate(colors):
        solid = i % 2 == 0
        look = checker(one, other, 1.0 + 0.5 * i, "xy", turn=15 * i) if solid else stripes(one, other, (1.5, 1.0, 0))
        half = (0.85 - 0.1 * i, 0.85 - 0.1 * i, 0.035 if solid else 0.07)
        b.box((0, 0, -0.75 + 0.34 * i), half, SOLID if solid else 5.0, look, rotation=rotation_about("z", 15 * i))
    for x, y in ((0.38, 0.38), (-0.38, 0.38), (-0.38, -0.38), (0.38, -0.38)):
        b.rod((x, y, -0.8), (x, y, 0.62), 0.03, SOLID, stripes(DARK, GREY, (0, 0, 5)))
    b.ball((0, 0, 0.86), 0.20, SOLID, checker(RED, CREAM, 2.5, "xyz"))
    leaning = rotation_about("z", 35) @ rotation_about("y", 62)
    b.box((0.90, 0.40, -0.36), (0.42, 0.3, 0.02), SOLID, checker(DARK, CREAM, 2.5, "xyz"), rotation=leaning)
    return b.build()


def toys() -> Primitives:
    """A table with a ball, blocks, a wire fence, a glass ball and a wisp of fog: something of everything."""
    b = Builder()
    b.disc((0, 0, -0.80), 1.25, 0.06, SOLID, checker(CREAM, (0.72, 0.60, 0.45), 1.2, "xy"))
    b.ball(
        (-0.45, 0.20, -0.29), 0.45, SOLID, with_waves(checker(RED, CREAM, 1.1, "xyz"), stripes(BLUE, CREAM, (0, 0, 4)))
    )
    b.box((0.45, 0.40, -0.46), 0.28, SOLID, checker(BLUE, YELLOW, 1.8, "xyz"), rotation=rotation_about("z", 20))
    b.box((0.47, 0.38, 0.02), 0.20, SOLID, stripes(GREEN, CREAM, (0, 0, 5)), rotation=rotation_about("z", 48))
    cube = rotation_about("x", 45) @ rotation_about("y", 35.26)
    b.box((0.46, 0.39, 0.40), 0.13, SOLID, stripes(PURPLE, PINK, (5, 5, 5)), rotation=cube)
    b.ball((0.35, -0.55, -0.50), 0.24, 8.0, stripes(TEAL, BLUE, (0, 0, 1.5)))
    b.ball((-0.55, -0.60, -0.60), 0.14, SOLID, stripes(ORANGE, DARK, (7, 0, 0)))
    b.ball((-0.25, -0.78, -0.65), 0.09, SOLID, plain(PINK))
    for i in range(8):
        angle = np.radians(200 + 18 * i)
        x, y = 1.1 * np.cos(angle), 1.1 * np.sin(angle)
        b.rod((x, y, -0.75), (x, y, -0.30), 0.018, SOLID, stripes(RED, CREAM, (0, 0, 6)))
        b.ball((x, y, -0.28), 0.042, SOLID, plain([YELLOW, TEAL][i % 2]), shade=0.25)
    b.rod((-0.45, 0.20, 0.10), (-0.45, 0.20, 0.85), 0.016, SOLID, plain(DARK))
    b.box((-0.28, 0.20, 0.72), (0.17, 0.012, 0.12), SOLID, stripes(RED, YELLOW, (0, 0, 6)))
    b.ball((0.05, 0.85, -0.35), (0.40, 0.25, 0.30), 1.5, stripes(GREY, PINK, (1, 0, 1)), shade=0)
    return b.build()


def landscape() -> Primitives:
    """Unbounded: a plaza with objects, towers at 5 to 30 units, hills at 50, a sun and the sky at 100."""
    b = Builder()
    b.slab(
        (0, 0, 1),
        -50.0,
        -0.42,
        20.0,
        with_waves(
            stripes((0.42, 0.58, 0.32), (0.60, 0.66, 0.40), (0.25, 0.1, 0)),
            stripes((0.38, 0.56, 0.30), (0.66, 0.68, 0.42), (0.02, -0.06, 0)),
        ),
    )
    b.disc((0, 0, -0.42), 1.6, 0.02, SOLID, checker(CREAM, (0.70, 0.58, 0.48), 0.9, "xy", turn=20), shade=0)
    b.ball((0, 0, -0.18), 0.22, SOLID, with_waves(checker(RED, CREAM, 2.2, "xyz"), stripes(BLUE, CREAM, (0, 0, 9))))
    b.box((0.40, 0.22, -0.29), 0.11, SOLID, stripes(BLUE, YELLOW, (0, 0, 8)), rotation=rotation_about("z", 30))
    b.box((-0.38, 0.30, -0.24), (0.08, 0.08, 0.16), SOLID, checker(TEAL, CREAM, 4.0, "xyz"))
    b.ball((0.15, -0.42, -0.31), 0.09, SOLID, stripes(PURPLE, PINK, (6, 0, 3)))
    for i in range(7):
        x, y = -0.62 + 0.05 * i, -0.25 - 0.06 * i
        b.rod((x, y, -0.4), (x, y, -0.05), 0.008, 2 * SOLID, stripes(DARK, ORANGE, (0, 0, 8)))
    towers = [
        (5, 20, 1.0),
        (7, 75, 2.2),
        (6, 140, 1.4),
        (9, 200, 3.0),
        (6, 255, 1.2),
        (12, 310, 4.0),
        (28, 45, 9.0),
        (25, 165, 7.0),
        (30, 285, 10.0),
    ]
    for i, (distance, degrees, height) in enumerate(towers):
        x, y = distance * np.cos(np.radians(degrees)), distance * np.sin(np.radians(degrees))
        one, other = [(RED, CREAM), (GREY, DARK), (ORANGE, CREAM), (BLUE, CREAM)][i % 4]
        look = stripes(one, other, (0, 0, 4.0 / height))
        half = (0.09 * distance, 0.09 * distance, height / 2)
        b.box((x, y, -0.42 + height / 2), half, 40.0, look, rotation=rotation_about("z", 37.0 * i))
    for i, (degrees, width, height) in enumerate(
        [(10, 30, 9), (60, 24, 6), (115, 34, 12), (180, 26, 8), (230, 36, 10), (295, 28, 7), (335, 22, 11)]
    ):
        x, y = 60 * np.cos(np.radians(degrees)), 60 * np.sin(np.radians(degrees))
        tone = 0.05 * (i % 3)
        look = stripes((0.36 + tone, 0.46, 0.52), (0.55 + tone, 0.60, 0.58), (0.02, 0.015, 0.05))
        b.ball((x, y, -0.42), (width, width, height), 10.0, look, rotation=rotation_about("z", degrees), shade=0.12)
    b.ball((50, -45, 45), 7.0, 20.0, plain((1.0, 0.93, 0.70)), shade=0)
    b.sky(
        100.0,
        1.0,
        with_waves(
            stripes((0.45, 0.66, 0.92), (0.93, 0.94, 0.95), (0, 0, 1 / 200.0), -0.6),
            stripes(CREAM, GREY, (0.01, 0.008, 0.02)),
        ),
    )
    return b.build()


SCENES: dict[str, Callable[[], Primitives]] = {
    "toys": toys,
    "spheres": spheres,
    "boxes": boxes,
    "wires": wires,
    "fog": fog,
    "slabs": slabs,
    "landscape": landscape,
}
UNBOUNDED = ("landscape",)


@cache
def primitives(name: str) -> Primitives:
    """Returns the primitives of a scene by name (built once)."""
    return SCENES[name]()
