"""Measurements of speed: ``nerfjax bench``."""
