"""Encodings of positions and directions: frequency, spherical harmonics, hash grid."""
