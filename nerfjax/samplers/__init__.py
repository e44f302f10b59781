"""Samplers: where along a ray the field is evaluated. The contract is in ``base``; a new member is a file and a row."""

from nerfjax.samplers.adaptive import adaptive
from nerfjax.samplers.base import DensityNetwork, Sampler, SamplerState
from nerfjax.samplers.compose import compose
from nerfjax.samplers.hierarchical import hierarchical
from nerfjax.samplers.neus import neus
from nerfjax.samplers.occupancy import occupancy
from nerfjax.samplers.proposal import proposal
from nerfjax.samplers.stratified import stratified

SAMPLERS = {
    "stratified": stratified,
    "hierarchical": hierarchical,
    "proposal": proposal,
    "occupancy": occupancy,
    "compose": compose,
    "adaptive": adaptive,
    "neus": neus,
}

__all__ = [
    "SAMPLERS",
    "DensityNetwork",
    "Sampler",
    "SamplerState",
    "adaptive",
    "compose",
    "hierarchical",
    "neus",
    "occupancy",
    "proposal",
    "stratified",
]
