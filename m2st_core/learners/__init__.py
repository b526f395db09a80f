"""Room 4: how a kernel, a classifier or a set of test points is found."""

from m2st_core.learners.bank import KernelBank, fit_bank
from m2st_core.learners.classifier import RowClassifier, fit_classifier
from m2st_core.learners.embeddings import PointFeatures, fit_mean_embedding, fit_smooth_characteristic, hotelling
from m2st_core.learners.kernels import fit_deep, fit_gaussian, fit_median

__all__ = [
    "KernelBank",
    "fit_bank",
    "PointFeatures",
    "RowClassifier",
    "fit_classifier",
    "fit_deep",
    "fit_gaussian",
    "fit_mean_embedding",
    "fit_median",
    "fit_smooth_characteristic",
    "hotelling",
]
