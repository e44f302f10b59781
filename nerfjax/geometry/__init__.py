"""Cameras, rays, the warps of ray and space, poses and camera paths."""
