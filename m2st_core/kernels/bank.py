"""Banks of kernels, for tests that combine many."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from m2st_core.kernels.base import Kernel, MixtureKernel


@dataclass(frozen=True)
class Family:
    """k kernels of one kind, batch shape (R, k), with their names and the prior weight π of each."""

    kernel: Kernel
    names: tuple[str, ...]
    share: float


@dataclass(frozen=True)
class KernelBank:
    """Families of kernels. The prior weights of all kernels sum to 1."""

    families: tuple[Family, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """One name per kernel."""
        return tuple(name for family in self.families for name in family.names)

    def mixture(self, weights: Tensor) -> MixtureKernel:
        """Σ_i β_i k_i with weights β of shape (R, k)."""
        families = self.families
        return MixtureKernel([family.kernel for family in families], [len(f.names) for f in families], weights)
