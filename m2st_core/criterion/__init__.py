"""Room 3: what makes a kernel good."""

from m2st_core.criterion.mmd import h_matrix, mmd2_paired, mmd2_unbiased
from m2st_core.criterion.power import masked_terms, power_criterion, variance
from m2st_core.criterion.witness import witness, witness_of_rows

__all__ = [
    "h_matrix",
    "masked_terms",
    "mmd2_paired",
    "mmd2_unbiased",
    "power_criterion",
    "variance",
    "witness",
    "witness_of_rows",
]
