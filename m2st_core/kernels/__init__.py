"""Room 2: k(x, y), batched by leading dimensions."""

from m2st_core.kernels.base import Kernel
from m2st_core.kernels.deep import DeepKernel, RootDeepKernel
from m2st_core.kernels.features import MLP
from m2st_core.kernels.fourier import FourierKernel, gaussian_frequencies
from m2st_core.kernels.gaussian import GaussianKernel, median_squared_distance
from m2st_core.kernels.images import CNN
from m2st_core.kernels.laplace import LaplaceKernel
from m2st_core.kernels.linear import ComposedKernel, LinearKernel
from m2st_core.kernels.mixture import MixtureKernel

__all__ = [
    "CNN",
    "MLP",
    "ComposedKernel",
    "DeepKernel",
    "FourierKernel",
    "GaussianKernel",
    "Kernel",
    "LaplaceKernel",
    "LinearKernel",
    "MixtureKernel",
    "RootDeepKernel",
    "gaussian_frequencies",
    "median_squared_distance",
]
