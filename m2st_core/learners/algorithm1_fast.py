"""Algorithm 1 with hand-written derivatives, since autograd took 148 s per repeat; tested against AutogradClimber.

Algorithm 1 differentiates through its inner steps, so it needs gradients and Hessian-vector products of Ĵ_λ thousands
of times, for small networks and about a hundred rows. Three facts make both cheap:

- Ĵ_λ depends on the Gram matrix K only through the signed row sums Ks (s = +1 in rows of x, −1 in rows of y) and the
  values k(x_i, y_i). The matrix H is never formed.
- The derivative of Ĵ_λ by K has rank 2, plus a diagonal of pairs. Its derivative by the embedded rows e, with
  K_ab = exp(−‖e_a−e_b‖²), is therefore a product of K with a few rows.
- Along a direction ė, K changes by K_ab·(−2)(e_a−e_b)·(ė_a−ė_b), which is one more matrix product.
Rows are stored as columns, (runs, features, rows), which makes products with K several times faster on a CPU.
Gaussians are powers of 2 instead of e, at half the cost; embeddings are scaled accordingly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from m2st_core.criterion import TaskObjective, criterion_bends, criterion_slopes
from m2st_core.data.related import PairedRows
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.distance import SMALLEST_EXPONENT
from m2st_core.presets import MetaAscentSettings

State = dict[str, Tensor]
LOG_2 = math.log(2)
UNIT = 1 / math.sqrt(LOG_2)  # exp(−D) = 2^(−D/log 2)


class Parameters:
    """A deep kernel's parameters as one vector per run, (runs, P), and back.

    >>> from m2st_core.kernels.networks import MLP
    >>> one = torch.ones(1)
    >>> kernel = DeepKernel(MLP((2, 3, 4), [torch.Generator()]), one, one, 0.5 * one)
    >>> vector = Parameters(kernel).join(dict(kernel.named_parameters()))
    >>> vector.shape, bool((Parameters(kernel).split(vector)["network.weights.0"] == kernel.network.weights[0]).all())
    (torch.Size([1, 28]), True)
    """

    def __init__(self, kernel: DeepKernel) -> None:
        tensors = dict(kernel.named_parameters())
        layers = range(sum(name.startswith("network.weights.") for name in tensors))
        self.weights = [f"network.weights.{layer}" for layer in layers]
        self.biases = [f"network.biases.{layer}" for layer in layers]
        self.names = [*self.weights, *self.biases, *kernel.curve_names]
        self.shapes = [tensors[name].shape[1:] for name in self.names]
        self.sizes = [shape.numel() for shape in self.shapes]

    def join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Tensors (runs, …) by name → (runs, P)."""
        return torch.cat([tensors[name].reshape(len(tensors[name]), -1) for name in self.names], dim=1)

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of a vector (runs, P) by name."""
        columns = zip(self.names, vector.split(self.sizes, dim=1), self.shapes, strict=True)
        return {name: values.unflatten(1, shape) if shape else values[:, 0] for name, values, shape in columns}


class SignedRows:
    """The rows of x, then those of y, of each run, with the quantities that stay fixed while a kernel learns from them.

    ``columns`` (runs, d, N) are the rows divided by √log 2, and ``distances`` (runs, N, N) their squared distances.
    ``sign`` (runs, 1, N) is s, with 0 in the padding. ``inside`` (runs, m) is 1 for pairs that are not padding. MMD² is
    the sum of the m row sums of H and the m values k(x_i, y_i), weighted by ``to_mmd2`` (runs, 2m), minus ``offset``
    (runs,). ``cubic`` (runs, 1) is 8/m³.
    """

    def __init__(self, kernel: DeepKernel, rows: PairedRows) -> None:
        """Take rows in the units of the kernel's network, whose batch size must divide the number of runs."""
        network, (runs, pairs, width) = kernel.network, rows.x.shape
        both = torch.cat([rows.x, rows.y], dim=1).reshape(len(network.centre), -1, width)
        self.columns = UNIT * network.normalise(both).reshape(runs, 2 * pairs, width).mT.contiguous()
        self.distances = _negative_distances(self.columns).neg_()
        self.inside, count = rows.inside, rows.inside.sum(dim=1, keepdim=True)
        self.sign = torch.cat([rows.inside, -rows.inside], dim=1)[:, None]
        self.to_mmd2 = torch.cat([rows.inside, 2 * rows.inside], dim=1) / (count * (count - 1))
        self.offset, self.cubic = 2 / (count[:, 0] - 1), 8 / count**3

    def collect(self, sums: Tensor, grams: Tensor | list[Tensor]) -> Tensor:
        """Row sums of H, Σ_jH_ij, and pairs k(x_i, y_i), from Ks (runs, k, N) and k Gram matrices: (runs, k, 2m)."""
        x, y = sums.chunk(2, dim=2)
        pairs = [gram.diagonal(gram.shape[1] // 2, dim1=1, dim2=2) for gram in grams]
        return torch.cat([(x - y) * self.inside[:, None], torch.stack(pairs, dim=1)], dim=2)

    def centre(self, values: Tensor) -> Tensor:
        """Row sums minus their mean, 0 in the padding: (runs, 2m) → (runs, m)."""
        sums = values[:, : self.inside.shape[1]]
        return (sums - sums.sum(dim=1, keepdim=True) / self.inside.sum(dim=1, keepdim=True)) * self.inside

    def apart(self, e: Tensor, weight: Tensor) -> Tensor:
        """weight·(e of the partner − e) for every row: (runs, f, N), (runs, m) → (runs, f, N)."""
        x, y = e.chunk(2, dim=2)
        difference = weight[:, None] * (y - x)
        return torch.cat([difference, -difference], dim=2)


def _negative_distances(e: Tensor) -> Tensor:
    """−‖e_a−e_b‖² of columns (runs, f, N): (runs, N, N)."""
    length = e.square().sum(dim=1, keepdim=True)
    unit = torch.ones_like(length)
    return torch.bmm(torch.cat([2 * e, -length, -unit], dim=1).mT, torch.cat([e, unit, length], dim=1)).clamp_(max=0)


class DeepTerms:
    """MMD² and σ̂², (runs,), of the kernel with parameters ``vector`` (runs, P), and their derivatives.

    In the code, a is the Gaussian of features and inputs, b that of the inputs alone, and t = 1/σ_q². A local variable
    of ``curvature`` holds the change, along the direction, of the quantity that it is named after.
    """

    def __init__(self, kernel: DeepKernel, layout: Parameters, vector: Tensor, rows: SignedRows) -> None:
        self.rows, self.layout = rows, layout
        parameters = layout.split(vector)
        self.weights = [parameters[name] for name in layout.weights]
        self.inputs, self.active = [rows.columns / UNIT], []  # each layer's inputs, and its softplus's derivatives
        for layer, (weight, bias) in enumerate(zip(layout.weights, layout.biases, strict=True)):
            self.features = torch.baddbmm(parameters[bias].mT, parameters[weight].mT, self.inputs[-1])
            if layer < len(self.weights) - 1:
                self.inputs.append(functional.softplus(self.features))
                self.active.append(self.features.sigmoid_())
        values, self.slopes, self.bends = kernel.curves(vector[:, -3:])  # of 1/σ_φ, 1/σ_q, ε: (runs, 3)
        self.feature_scale, self.input_scale, mixing = values[:, :, None].split(1, dim=1)  # (runs, 1, 1)
        self.e = torch.cat([UNIT * self.features * self.feature_scale, rows.columns * self.input_scale], dim=1)
        self.gram = _negative_distances(self.e).clamp_(min=SMALLEST_EXPONENT).exp2_()
        self.signed = torch.cat([rows.sign, rows.sign * self.e], dim=1)
        self.products = torch.bmm(self.signed, self.gram)  # Ks and K(s·e)
        b = (rows.distances * -self.input_scale.square()).clamp_(min=SMALLEST_EXPONENT).exp2_()
        b_1 = b * rows.distances
        b_2 = b_1 * rows.distances
        sums = torch.cat([self.products[:, :1], *(torch.bmm(rows.sign, gram) for gram in (b, b_1, b_2))], dim=1)
        self.a, b, self.b_1, self.b_2 = rows.collect(sums, [self.gram, b, b_1, b_2]).unbind(dim=1)  # (runs, 2m)
        self.b_less_a, self.eps = b - self.a, mixing[:, 0]
        total = torch.lerp(self.a, b, self.eps)
        self.centred = rows.centre(total)
        self.mmd2 = (total * rows.to_mmd2).sum(dim=1) - rows.offset
        self.variance = 0.5 * (self.centred.square() * rows.cubic).sum(dim=1)

    def criterion_gradient(self, regularisation: float) -> Tensor:
        """∇Ĵ_λ: (runs, P)."""
        return self.gradient(*criterion_slopes(self.mmd2, self.variance, regularisation))

    def gradient(self, by_mmd2: Tensor, by_variance: Tensor) -> Tensor:
        """The gradient (runs, P) of a function of MMD² and σ̂², given its derivatives by both, (runs,)."""
        rows, pairs = self.rows, self.centred.shape[1]
        self.by_variance = by_variance[:, None]
        self.g = by_mmd2[:, None] * rows.to_mmd2  # by row sums and pairs
        self.g[:, :pairs] += self.by_variance * rows.cubic * self.centred
        by_mixing = (self.g * self.b_less_a).sum(dim=1, keepdim=True)
        self.by_t = -LOG_2 * self.eps * (self.g * self.b_1).sum(dim=1, keepdim=True)
        of_a = (1 - self.eps) * self.g
        self.g_a, self.p_a = of_a[:, None, :pairs].repeat(1, 1, 2), of_a[:, pairs:] * self.a[:, pairs:]
        self.weighted = self.g_a * self.signed
        self.pull = rows.sign * (self.g_a * self.products + torch.bmm(self.weighted, self.gram))
        self.by_e = 2 * LOG_2 * (self.pull[:, 1:] - self.pull[:, :1] * self.e + rows.apart(self.e, self.p_a))
        by_features, by_inputs = self._split(self.by_e)
        by_input_scale = 2 * self.by_t * self.input_scale[:, 0]
        self.by_values = self._by_values(by_features * self.features, by_inputs, by_input_scale, by_mixing)
        self.deltas, self.backs = [UNIT * by_features * self.feature_scale], []  # from the last layer to the first
        weights, biases = [], []
        for layer in reversed(range(len(self.weights))):
            weights.append(torch.bmm(self.inputs[layer], self.deltas[-1].mT).flatten(1))
            biases.append(self.deltas[-1].sum(dim=2))
            if layer:
                self.backs.append(torch.bmm(self.weights[layer], self.deltas[-1]))
                self.deltas.append(self.active[layer - 1] * self.backs[-1])
        return torch.cat([*reversed(weights), *reversed(biases), self.slopes * self.by_values], dim=1)

    def curvature(self, direction: Tensor, regularisation: float) -> Tensor:
        """∇²Ĵ_λ times a direction (runs, P), after a call of ``criterion_gradient``: (runs, P)."""
        rows, pairs = self.rows, self.centred.shape[1]
        feature_scale, input_scale, mixing = (self.slopes * direction[:, -3:])[:, :, None].split(1, dim=1)
        t, mixing = 2 * (self.input_scale * input_scale)[:, 0], mixing[:, 0]
        along = self.layout.split(direction)
        features, inputs = self._embed_along(along)
        scaled = features * self.feature_scale + self.features * feature_scale
        e = torch.cat([UNIT * scaled, rows.columns * input_scale], dim=1)
        length, unit = (self.e * e).sum(dim=1, keepdim=True), torch.ones_like(rows.sign)
        change = torch.bmm(
            torch.cat([self.e, e, length, unit], dim=1).mT, torch.cat([e, self.e, -unit, -length], dim=1)
        )
        gram = change.mul_(self.gram)  # up to 2 log 2
        products, weighted = (2 * LOG_2 * torch.bmm(torch.cat([self.signed, self.weighted], dim=1), gram)).chunk(2, 1)
        a = rows.collect(products[:, :1], [gram])[:, 0]
        a[:, pairs:] *= 2 * LOG_2
        b = -LOG_2 * t * self.b_1
        total = torch.lerp(a, b, self.eps) + mixing * self.b_less_a
        mmd2 = (total * rows.to_mmd2).sum(dim=1)
        variance = (self.centred * total[:, :pairs] * rows.cubic).sum(dim=1)
        by_mmd2, by_variance = criterion_bends(self.mmd2, self.variance, mmd2, variance, regularisation)
        g = by_mmd2[:, None] * rows.to_mmd2
        g[:, :pairs] += rows.cubic * (by_variance[:, None] * self.centred + self.by_variance * rows.centre(total))
        of_a = (1 - self.eps) * g - mixing * self.g
        g_a, p_a = of_a[:, None, :pairs].repeat(1, 1, 2), of_a[:, pairs:] * self.a[:, pairs:]
        p_a = p_a + (1 - self.eps) * self.g[:, pairs:] * a[:, pairs:]
        moved = torch.bmm(rows.sign * torch.cat([e, g_a, g_a * self.e + self.g_a * e], dim=1), self.gram)
        products[:, 1:] += moved[:, : e.shape[1]]
        pull = rows.sign * (g_a * self.products + self.g_a * products + weighted + moved[:, e.shape[1] :])
        by_e = pull[:, 1:] - pull[:, :1] * self.e - self.pull[:, :1] * e
        by_e = 2 * LOG_2 * (by_e + rows.apart(self.e, p_a) + rows.apart(e, self.p_a))
        by_mixing = (g * self.b_less_a + self.g * (b - a)).sum(dim=1, keepdim=True)
        by_t = self.eps * (g * self.b_1 - LOG_2 * t * self.g * self.b_2) + mixing * self.g * self.b_1
        by_t = -LOG_2 * by_t.sum(dim=1, keepdim=True)
        (by_features, by_inputs), (before, _) = self._split(by_e), self._split(self.by_e)
        by_input_scale = 2 * (by_t * self.input_scale[:, 0] + self.by_t * input_scale[:, 0])
        by_feature_scale = by_features * self.features + before * features
        by_values = self._by_values(by_feature_scale, by_inputs, by_input_scale, by_mixing)
        delta = UNIT * (by_features * self.feature_scale + before * feature_scale)
        by_curves = self.slopes * by_values + self.bends * direction[:, -3:] * self.by_values
        return torch.cat([*self._back_along(along, inputs, delta), by_curves], dim=1)

    def _embed_along(self, direction: Mapping[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Changes of φ, and of the inputs of every later layer."""
        changes: list[Tensor] = []
        last = len(self.weights) - 1
        for layer, weight in enumerate(self.weights):
            bias = direction[self.layout.biases[layer]].mT
            change = torch.baddbmm(bias, direction[self.layout.weights[layer]].mT, self.inputs[layer])
            if layer:
                change = torch.baddbmm(change, weight.mT, changes[-1])
            changes.append(change * self.active[layer] if layer < last else change)
        return changes[-1], changes[:-1]

    def _back_along(self, direction: Mapping[str, Tensor], inputs: list[Tensor], delta: Tensor) -> list[Tensor]:
        """Changes of the derivatives by weights and biases; ``delta`` is that of the derivative by φ."""
        weights, biases = [], []
        for step, layer in enumerate(reversed(range(len(self.weights)))):
            change = torch.bmm(self.inputs[layer], delta.mT)
            biases.append(delta.sum(dim=2))
            if layer:
                change = torch.baddbmm(change, inputs[layer - 1], self.deltas[step].mT)
                back = torch.bmm(direction[self.layout.weights[layer]], self.deltas[step])
                back = torch.baddbmm(back, self.weights[layer], delta)
                active = self.active[layer - 1]
                delta = active * back + (1 - active) * inputs[layer - 1] * self.backs[step]
            weights.append(change.flatten(1))
        return weights[::-1] + biases[::-1]

    def _split(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Features and inputs of embedded rows."""
        return e[:, : self.features.shape[1]], e[:, self.features.shape[1] :]

    def _by_values(self, by_feature_scale: Tensor, by_inputs: Tensor, by_input_scale: Tensor, mixing: Tensor) -> Tensor:
        """Derivatives by 1/σ_φ, 1/σ_q and ε, the first two summed over rows: (runs, 3)."""
        features = UNIT * by_feature_scale.sum(dim=(1, 2))[:, None]
        inputs = (by_inputs * self.rows.columns).sum(dim=(1, 2))[:, None]
        return torch.cat([features, inputs + by_input_scale, mixing], dim=1)


class FastClimber:
    """Terms and gradients of Algorithm 1 for a deep kernel of rows: hand-written derivatives, all runs in one batch."""

    def __init__(self, kernel: DeepKernel, settings: MetaAscentSettings) -> None:
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
