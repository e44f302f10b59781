"""Durations and counts as people write them, for progress, tables and reports."""

from __future__ import annotations


def format_seconds(seconds: float | int) -> str:
    """Returns ``45s``, ``3m20s`` or ``2h05m``."""
    whole = int(round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def format_count(count: float | int) -> str:
    """Returns ``870``, ``10.2k``, ``3.4M``, G or T."""
    for scale, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= scale:
            return f"{count / scale:.1f}{unit}"
    return f"{count:.0f}"
