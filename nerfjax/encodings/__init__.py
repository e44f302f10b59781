"""Encodings of positions and directions: frequencies and their integrals, harmonics, grids of features."""
