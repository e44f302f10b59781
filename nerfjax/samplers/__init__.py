"""Samplers: where along a ray the field is evaluated. The contract is in ``base``; a new member is a file and a row."""

from nerfjax.samplers.base import DensityNetwork, Sampler, SamplerState
from nerfjax.samplers.hierarchical import hierarchical
from nerfjax.samplers.proposal import proposal
from nerfjax.samplers.stratified import stratified

SAMPLERS = {
    "stratified": stratified,
    "hierarchical": hierarchical,
    "proposal": proposal,
}

__all__ = ["SAMPLERS", "DensityNetwork", "Sampler", "SamplerState", "hierarchical", "proposal", "stratified"]
