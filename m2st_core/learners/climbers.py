"""Gradients of Algorithm 1: how much θ improves the objective on query rows, after inner steps on support rows."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.func import grad

from m2st_core.criterion import TaskObjective, criterion_ratio
from m2st_core.data.related import PairedRows
from m2st_core.device import map_threads
from m2st_core.kernels.deep import DeepKernel, Parameters
from m2st_core.learners.adaptation import Paired, State, adapt_state, terms
from m2st_core.learners.deep_terms import DeepTerms, SignedRows
from m2st_core.presets import MetaAscent


class WrittenOut:
    """A deep kernel of rows: derivatives are written out, for all runs at once."""

    def __init__(self, kernel: DeepKernel, settings: MetaAscent) -> None:
        if settings.restart and settings.second_order:
            raise ValueError("Inner steps that restart from θ are first order, as in the published code.")
        self.kernel, self.settings, self.layout = kernel, settings, Parameters(kernel)
        self.moving = torch.ones_like(self._theta()[0])  # 1 for parameters that inner steps change
        if settings.adapts == "network":
            self.moving[-3:] = 0

    def _theta(self) -> Tensor:
        return self.layout.join({name: parameter.detach() for name, parameter in self.kernel.named_parameters()})

    def _adapt(self, support: PairedRows, query: PairedRows) -> tuple[DeepTerms, list[DeepTerms]]:
        """The query rows' terms after the inner steps, and those of the steps if they are differentiated."""
        settings, course = self.settings, []
        start = vector = self._theta().repeat_interleave(len(query.x) // len(self.kernel.network.centre), dim=0)
        if settings.inner_steps:
            rows = SignedRows(self.kernel, support)
        for _ in range(settings.inner_steps):
            inner = DeepTerms(self.kernel, self.layout, vector, rows)
            gradient = inner.criterion_gradient(settings.regularisation)
            step = gradient.nan_to_num_(0.0, 0.0, 0.0).mul_(self.moving)
            vector = torch.add(start if settings.restart else vector, step, alpha=settings.inner_rate)
            if settings.second_order:
                course.append(inner)
        return DeepTerms(self.kernel, self.layout, vector, SignedRows(self.kernel, query)), course

    @torch.no_grad()
    def terms(self, support: PairedRows, query: PairedRows) -> tuple[Tensor, Tensor]:
        """MMD² and σ̂² of each run's query rows after the inner steps: (runs,), (runs,)."""
        outer, _ = self._adapt(support, query)
        return outer.mmd2, outer.variance

    @torch.no_grad()
    def gradient(self, support: PairedRows, query: PairedRows, objective: TaskObjective) -> tuple[State, Tensor]:
        """The gradient by θ, by name, and the values (R,). Backwards through the inner steps, v ← v + η∇²Ĵ(ω)v."""
        outer, course = self._adapt(support, query)
        values, by_mmd2, by_variance = objective(outer.mmd2, outer.variance)
        vector = outer.gradient(by_mmd2, by_variance)
        for inner in reversed(course):
            bent = inner.curvature(vector * self.moving, self.settings.regularisation)
            vector = torch.add(vector, bent.nan_to_num_(0.0, 0.0, 0.0), alpha=self.settings.inner_rate)
        return self.layout.split(vector.unflatten(0, (len(values), -1)).sum(dim=1)), values


class RunByRun:
    """A deep kernel of images: derivatives by autograd, one run after another, spread over threads.

    Networks for images are so large that one run keeps a core busy, and memory holds a few of them. Sums follow the
    order of the runs, whatever the number of threads.
    """

    def __init__(self, kernel: DeepKernel, settings: MetaAscent) -> None:
        if settings.ratio_of_means:
            raise ValueError("Deep kernels of images learn task by task, but ratio_of_means needs all tasks at once.")
        self.kernel, self.settings = kernel, settings
        self.repeats = len(kernel.network.centre)

    def _run(self, run: int, runs: int) -> tuple[Paired, State]:
        """A copy of the kernel for one run, since functional_call changes a module while it runs, and its state."""
        own = Paired(copy.deepcopy(self.kernel))
        repeat = run // (runs // self.repeats)
        return own, {name: tensor.detach()[repeat][None] for name, tensor in own.state_dict().items()}

    def _terms(self, own: Paired, state: State, run: int, *parts: PairedRows) -> tuple[Tensor, Tensor]:
        """MMD² and σ̂² of one run's query rows after its inner steps on the support rows: (1,), (1,)."""
        support, query = (PairedRows(p.x[run][None], p.y[run][None], p.inside[run][None]) for p in parts)
        return terms(own, adapt_state(own, state, support, self.settings, self.settings.inner_steps), query)

    def terms(self, support: PairedRows, query: PairedRows) -> tuple[Tensor, Tensor]:
        """MMD² and σ̂² of each run's query rows after the inner steps: (runs,), (runs,)."""
        runs = len(query.x)

        def one(run: int) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                return self._terms(*self._run(run, runs), run, support, query)

        mmd2, variance = zip(*map_threads(one, range(runs)), strict=True)
        return torch.cat(mmd2), torch.cat(variance)

    def gradient(self, support: PairedRows, query: PairedRows, objective: TaskObjective) -> tuple[State, Tensor]:
        """The sum of the runs' gradients by θ, by name, and the objective's values (R,)."""
        runs = len(query.x)
        tasks = runs // self.repeats

        def one(run: int) -> tuple[State, tuple[Tensor, Tensor]]:
            own, state = self._run(run, runs)

            def loss(changed: State) -> tuple[Tensor, tuple[Tensor, Tensor]]:
                mmd2, variance = self._terms(own, state | changed, run, support, query)
                value = criterion_ratio(mmd2, variance, self.settings.regularisation)
                return value.sum() / tasks, (mmd2.detach(), variance.detach())

            return grad(loss, has_aux=True)({name: state[name] for name, _ in own.named_parameters()})

        total: State = {}
        mmd2, variance = [], []
        for run, (gradient, (own_mmd2, own_variance)) in enumerate(map_threads(one, range(runs))):
            mmd2.append(own_mmd2)
            variance.append(own_variance)
            for name, part in gradient.items():
                name = name.removeprefix("kernel.")
                total.setdefault(name, part.new_zeros(self.repeats, *part.shape[1:]))[run // tasks] += part[0]
        return total, objective(torch.cat(mmd2), torch.cat(variance))[0]
