"""Algorithm 1 with hand-written derivatives, since autograd took 148 s per repeat; tested against AutogradClimber.

Algorithm 1 differentiates through its inner steps, so it needs gradients and Hessian-vector products of Ĵ_λ thousands
of times, for small networks and about a hundred rows. Three facts make both cheap:

- Ĵ_λ depends on the Gram matrix K only through the signed row sums Ks (s = +1 in rows of x, −1 in rows of y) and the
  values k(x_i, y_i). The matrix H is never formed.
- The derivative of Ĵ_λ by K has rank 2, plus a diagonal of pairs. With A = K∘(that derivative, symmetric), and
  K_ab = exp(−‖e_a−e_b‖²) of embedded rows e_a, the derivative by e_a is 2·Σ_b A_ab(e_b−e_a): one matrix product.
- Along a direction ė, the exponents change by −2(e_a−e_b)·(ė_a−ė_b), one more product. K and A follow by the product
  rule, and so does the derivative by e.
Such small matrices cost less to compute than to ask for, so what counts is the number of operations: a layer's biases
are one more row of its weights, and 1/σ_φ multiplies the last layer instead of its outputs. Rows are stored as columns,
(runs, features, rows), which makes products with K several times faster on a CPU. Gaussians are powers of 2 instead of
e, at half the cost; 1/σ_φ and 1/σ_q are scaled accordingly.
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

    A layer's biases follow its weights, so that both are one matrix with inputs + 1 rows. The last three numbers are
    those of 1/σ_φ, 1/σ_q and ε.

    >>> from m2st_core.kernels.networks import MLP
    >>> one = torch.ones(1)
    >>> kernel = DeepKernel(MLP((2, 3, 4), [torch.Generator()]), one, one, 0.5 * one)
    >>> vector = Parameters(kernel).join(dict(kernel.named_parameters()))
    >>> vector.shape, bool((Parameters(kernel).split(vector)["network.weights.0"] == kernel.network.weights[0]).all())
    (torch.Size([1, 28]), True)
    """

    def __init__(self, kernel: DeepKernel) -> None:
        tensors = dict(kernel.named_parameters())
        count = sum(name.startswith("network.weights.") for name in tensors)
        layers = [f"network.{part}.{layer}" for layer in range(count) for part in ("weights", "biases")]
        self.names = [*layers, *kernel.curve_names]
        self.shapes = [tensors[name].shape[1:] for name in self.names]
        self.sizes = [shape.numel() for shape in self.shapes]
        self.layer_shapes = [(inputs + 1, outputs) for inputs, outputs in self.shapes[: 2 * count : 2]]
        self.layer_sizes = [inputs * outputs for inputs, outputs in self.layer_shapes] + [3]

    def join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Tensors (runs, …) by name → (runs, P)."""
        return torch.cat([tensors[name].reshape(len(tensors[name]), -1) for name in self.names], dim=1)

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of a vector (runs, P) by name."""
        columns = zip(self.names, vector.split(self.sizes, dim=1), self.shapes, strict=True)
        return {name: values.unflatten(1, shape) if shape else values[:, 0] for name, values, shape in columns}

    def layers(self, vector: Tensor) -> tuple[list[Tensor], Tensor]:
        """Views of a vector (runs, P): layers' weights above their biases, (runs, inputs + 1, outputs); the rest."""
        *layers, rest = vector.split(self.layer_sizes, dim=1)
        return [layer.unflatten(1, shape) for layer, shape in zip(layers, self.layer_shapes, strict=True)], rest


class SignedRows:
    """The m rows of x, then those of y, of each run, and what stays fixed while a kernel learns from them; N = 2m.

    ``columns`` (runs, d, N) are the rows, ``inputs`` the same above a row of ones, and ``distances`` (runs, N, N) their
    squared distances. ``sign`` (runs, 1, N) is s, with 0 in the padding; ``inside`` (runs, m) is 1 for pairs that are
    not padding. What Ĵ needs of a Gram matrix K are its *sums* (runs, 3m): Ks, then the m values k(x_i, y_i). MMD² is
    their sum weighted by ``to_mmd2``, minus ``offset`` (runs,). ``cubic`` (runs, 1) is 8/m³.
    """

    def __init__(self, kernel: DeepKernel, rows: PairedRows) -> None:
        """Take rows in the units of the kernel's network, whose batch size must divide the number of runs."""
        network, (runs, pairs, width) = kernel.network, rows.x.shape
        both = torch.cat([rows.x, rows.y], dim=1).reshape(len(network.centre), -1, width)
        self.columns = network.normalise(both).reshape(runs, 2 * pairs, width).mT.contiguous()
        self.ones = torch.ones_like(self.columns[:, :1])
        self.inputs = torch.cat([self.columns, self.ones], dim=1)
        self.distances = _negative_distances(self.columns, self.ones).neg_()
        self.pairs, self.inside, count = pairs, rows.inside, rows.inside.sum(dim=1, keepdim=True)
        self.sign = torch.cat([rows.inside, -rows.inside], dim=1)[:, None]
        self.to_mmd2 = torch.cat([rows.inside, -rows.inside, 2 * rows.inside], dim=1) / (count * (count - 1))
        self.offset, self.cubic, self.share = 2 / (count[:, 0] - 1), 8 / count**3, rows.inside / count
        self.nothing = torch.zeros_like(rows.inside)
        self.units = rows.x.new_tensor([UNIT, UNIT, 1])  # of 1/σ_φ, 1/σ_q and ε

    def sums(self, gram: Tensor) -> Tensor:
        """Ks and k(x_i, y_i) of a Gram matrix (runs, N, N): (runs, 1, 3m)."""
        pairs = gram.diagonal(self.pairs, dim1=1, dim2=2)
        return torch.cat([torch.bmm(self.sign, gram), pairs[:, None]], dim=2)

    def centre(self, sums: Tensor) -> Tensor:
        """Row sums c_i of H minus their mean, 0 in the padding, as weights of sums: c, −c and 0, (runs, 3m)."""
        h = (sums[:, : self.pairs] - sums[:, self.pairs : 2 * self.pairs]) * self.inside
        h = torch.addcmul(h, self.share, h.sum(dim=1, keepdim=True), value=-1)
        return torch.cat([h, -h, self.nothing], dim=1)

    def weigh(self, gram: Tensor, by_sums: Tensor) -> Tensor:
        """The symmetric K_ab·∂L/∂K_ab, counting both K_ab and K_ba, from ∂L/∂sums (runs, 3m): (runs, N, N)."""
        by_rows, by_pairs = by_sums[:, None, : 2 * self.pairs], by_sums[:, 2 * self.pairs :]
        slopes = torch.bmm(torch.cat([by_rows, self.sign], dim=1).mT, torch.cat([self.sign, by_rows], dim=1))
        for side in (self.pairs, -self.pairs):
            slopes.diagonal(side, dim1=1, dim2=2).add_(by_pairs)
        return slopes.mul_(gram)


def _negative_distances(e: Tensor, ones: Tensor, smallest: float | None = None) -> Tensor:
    """−‖e_a−e_b‖² of columns (runs, f, N), clamped to [``smallest``, 0]: (runs, N, N)."""
    length = e.square().sum(dim=1, keepdim=True)
    left, right = torch.cat([2 * e, -length, -ones], dim=1), torch.cat([e, ones, length], dim=1)
    return torch.bmm(left.mT, right).clamp_(min=smallest, max=0)


class DeepTerms:
    """MMD² and σ̂², (runs,), of the kernel with parameters ``vector`` (runs, P), and their derivatives.

    In the code, a is the Gaussian of features and inputs, b that of the inputs alone, and t = 1/σ_q². b_1 and b_2 are b
    times the distances and their squares, which its derivatives by t need. ``basis`` (runs, 4, 3m) are the sums of
    these four. The layers in ``scaled`` are those of the network, the last one multiplied by 1/σ_φ. A local variable of
    ``curvature`` holds the change, along the direction, of the quantity that it is named after.
    """

    def __init__(self, kernel: DeepKernel, layout: Parameters, vector: Tensor, rows: SignedRows) -> None:
        self.rows, self.layout = rows, layout
        layers, curves = layout.layers(vector)
        values, self.slopes, self.bends = (curve * rows.units for curve in kernel.curves(curves))
        self.feature_scale, self.input_scale, self.eps = values.split(1, dim=1)  # 1/σ_φ, 1/σ_q and ε: (runs, 1)
        self.last = layers[-1]
        self.scaled = [*layers[:-1], self.last * self.feature_scale[:, None]]
        self.inputs, self.active = [rows.inputs], []  # each layer's inputs, and its softplus's derivatives
        for layer in layers[:-1]:
            outputs = torch.bmm(layer.mT, self.inputs[-1])
            self.inputs.append(torch.cat([functional.softplus(outputs), rows.ones], dim=1))
            self.active.append(outputs.sigmoid_())
        features = torch.bmm(self.scaled[-1].mT, self.inputs[-1])
        self.e = torch.cat([features, rows.columns * self.input_scale[:, None]], dim=1)
        self.gram = _negative_distances(self.e, rows.ones, SMALLEST_EXPONENT).exp2_()
        b = (rows.distances * -self.input_scale.square()[:, None]).clamp_(min=SMALLEST_EXPONENT).exp2_()
        sums = [rows.sums(self.gram), rows.sums(b)]
        for _ in range(2):
            sums.append(rows.sums(b.mul_(rows.distances)))
        self.basis = torch.cat(sums, dim=1)
        total = torch.lerp(self.basis[:, 0], self.basis[:, 1], self.eps)
        self.centred = rows.centre(total)
        self.mmd2 = (total * rows.to_mmd2).sum(dim=1) - rows.offset
        self.variance = 0.25 * (self.centred.square() * rows.cubic).sum(dim=1)

    def criterion_gradient(self, regularisation: float) -> Tensor:
        """∇Ĵ_λ: (runs, P)."""
        return self.gradient(*criterion_slopes(self.mmd2, self.variance, regularisation))

    def gradient(self, by_mmd2: Tensor, by_variance: Tensor) -> Tensor:
        """The gradient (runs, P) of a function of MMD² and σ̂², given its derivatives by both, (runs,)."""
        rows = self.rows
        self.by_variance = by_variance[:, None] * rows.cubic
        self.by_sums = torch.addcmul(by_mmd2[:, None] * rows.to_mmd2, self.by_variance, self.centred)
        self.by_basis = self._by_basis(self.by_sums)
        by_a, by_b, by_b_1, _ = self.by_basis
        self.weights = rows.weigh(self.gram, (1 - self.eps) * self.by_sums)
        pull = torch.bmm(torch.cat([self.e, rows.ones], dim=1), self.weights)
        self.total_weight = pull[:, -1:]
        by_e = 2 * LOG_2 * torch.addcmul(pull[:, :-1], self.e, self.total_weight, value=-1)
        delta, by_inputs = self._split(by_e)
        self.deltas, self.inactive = [delta], []  # derivatives by outputs, from the last layer to the first
        by_layers = [torch.bmm(self.inputs[-1], delta.mT)]
        for layer in reversed(range(1, len(self.scaled))):
            back = torch.bmm(self.scaled[layer][:, :-1], delta)
            delta = self.active[layer - 1] * back
            by_layers.append(torch.bmm(self.inputs[layer - 1], delta.mT))
            self.deltas.append(delta)
            self.inactive.append(back - delta)
        self.by_last, self.by_t = by_layers[0], -LOG_2 * self.eps * by_b_1
        by_feature_scale = (self.last * self.by_last).sum(dim=(1, 2))[:, None]
        by_input_scale = (by_inputs * rows.columns).sum(dim=(1, 2))[:, None] + 2 * self.input_scale * self.by_t
        self.by_values = torch.cat([by_feature_scale, by_input_scale, by_b - by_a], dim=1)
        by_layers[0] = self.by_last * self.feature_scale[:, None]
        return self._joined(by_layers, self.slopes * self.by_values)

    def curvature(self, direction: Tensor, regularisation: float) -> Tensor:
        """∇²Ĵ_λ times a direction (runs, P), after a call of ``criterion_gradient``: (runs, P)."""
        rows, (layers, curves) = self.rows, self.layout.layers(direction)
        feature_scale, input_scale, eps = (self.slopes * curves).split(1, dim=1)
        t, last = 2 * self.input_scale * input_scale, layers[-1]
        layers[-1] = torch.addcmul(last * self.feature_scale[:, None], self.last, feature_scale[:, None])
        features, inputs = self._embed_along(layers)
        e = torch.cat([features, rows.columns * input_scale[:, None]], dim=1)
        length = (self.e * e).sum(dim=1, keepdim=True)
        exponents = torch.bmm(
            torch.cat([self.e, e, -length, rows.ones], dim=1).mT, torch.cat([e, self.e, rows.ones, -length], dim=1)
        )  # up to 2
        a = 2 * LOG_2 * rows.sums(exponents * self.gram)[:, 0]
        of_basis = torch.cat([-eps, eps, -LOG_2 * t * self.eps], dim=1)
        total = torch.bmm(of_basis[:, None], self.basis[:, :3])[:, 0].addcmul_(1 - self.eps, a)
        mmd2 = (total * rows.to_mmd2).sum(dim=1)
        variance = (self.centred * total * rows.cubic).sum(dim=1)
        by_mmd2, by_variance = criterion_bends(self.mmd2, self.variance, mmd2, variance, regularisation)
        by_sums = torch.addcmul(by_mmd2[:, None] * rows.to_mmd2, by_variance[:, None] * rows.cubic, self.centred)
        by_sums.addcmul_(self.by_variance, rows.centre(total))
        weights = rows.weigh(self.gram, torch.addcmul((1 - self.eps) * by_sums, eps, self.by_sums, value=-1))
        weights.addcmul_(self.weights, exponents, value=2 * LOG_2)
        pull = torch.bmm(torch.cat([self.e, rows.ones], dim=1), weights)
        by_e = torch.baddbmm(pull[:, :-1], e, self.weights)
        by_e.addcmul_(self.e, pull[:, -1:], value=-1).addcmul_(e, self.total_weight, value=-1).mul_(2 * LOG_2)
        delta, by_inputs = self._split(by_e)
        by_layers = self._back_along(layers, inputs, delta)
        (by_a, by_b, by_b_1, _), (_, _, before_1, before_2) = self._by_basis(by_sums), self.by_basis
        by_t = -LOG_2 * (eps * before_1 + self.eps * (by_b_1 - LOG_2 * t * before_2))
        by_feature_scale = (last * self.by_last + self.last * by_layers[0]).sum(dim=(1, 2))[:, None]
        by_input_scale = (by_inputs * rows.columns).sum(dim=(1, 2))[:, None]
        by_input_scale += 2 * (self.input_scale * by_t + input_scale * self.by_t)
        by_mixing = by_b - by_a - LOG_2 * t * before_1 - (self.by_sums * a).sum(dim=1, keepdim=True)
        by_values = torch.cat([by_feature_scale, by_input_scale, by_mixing], dim=1)
        by_layers[0] = torch.addcmul(by_layers[0] * self.feature_scale[:, None], self.by_last, feature_scale[:, None])
        return self._joined(by_layers, self.slopes * by_values + self.bends * curves * self.by_values)

    def _embed_along(self, layers: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Changes of embedded features, and of every later layer's inputs, when ``scaled`` changes by ``layers``."""
        outputs, inputs = torch.bmm(layers[0].mT, self.inputs[0]), []
        for layer in range(1, len(layers)):
            inputs.append(outputs * self.active[layer - 1])
            outputs = torch.bmm(layers[layer].mT, self.inputs[layer])
            outputs.baddbmm_(self.scaled[layer][:, :-1].mT, inputs[-1])
        return outputs, inputs

    def _back_along(self, layers: list[Tensor], inputs: list[Tensor], delta: Tensor) -> list[Tensor]:
        """Changes of the derivatives by ``scaled``, the last first; ``delta`` is that of the derivative by features."""
        changes = []
        for step, layer in enumerate(reversed(range(len(layers)))):
            changes.append(torch.bmm(self.inputs[layer], delta.mT))
            if layer:
                changes[-1][:, :-1].baddbmm_(inputs[layer - 1], self.deltas[step].mT)
                back = torch.bmm(layers[layer][:, :-1], self.deltas[step])
                back.baddbmm_(self.scaled[layer][:, :-1], delta)
                delta = torch.addcmul(inputs[layer - 1] * self.inactive[step], self.active[layer - 1], back)
        return changes

    def _by_basis(self, by_sums: Tensor) -> tuple[Tensor, ...]:
        """Products of weights of sums (runs, 3m) with the sums of a, b, b_1 and b_2: (runs, 1) each."""
        return torch.bmm(self.basis, by_sums[:, :, None]).unbind(dim=1)

    def _split(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Features and inputs of embedded rows."""
        features = self.last.shape[2]
        return e[:, :features], e[:, features:]

    def _joined(self, by_layers: list[Tensor], by_curves: Tensor) -> Tensor:
        """Derivatives by layers, the last first, and by the parameters of 1/σ_φ, 1/σ_q and ε: (runs, P)."""
        return torch.cat([*(by.flatten(1) for by in reversed(by_layers)), by_curves], dim=1)


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
