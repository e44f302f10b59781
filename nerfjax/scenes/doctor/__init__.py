"""The doctor: what is wrong with a capture, before an hour of training is spent on it.

``examine(scene, quick=True)`` before a training, ``inspect_source(source)`` for ``nerfjax inspect``.
"""

from nerfjax.scenes.doctor.diagnosis import Diagnosis, diagnose, examine, inspect_source
from nerfjax.scenes.doctor.findings import CODES, Finding, arrange, count, error_from_findings, print_findings
from nerfjax.scenes.doctor.splits import how_to_hold_out

__all__ = [
    "CODES", "Diagnosis", "Finding", "arrange", "count", "diagnose", "error_from_findings", "examine",
    "how_to_hold_out", "inspect_source", "print_findings",
]  # fmt: skip
