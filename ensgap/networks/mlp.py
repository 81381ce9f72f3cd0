"""A multilayer perceptron: linear (no bias) → batch norm → ReLU for each hidden layer, then linear."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ensgap.networks.mlp_gradients import mlp_gradients
from ensgap.stack.batch_ensemble import BatchEnsembleLinear
from ensgap.stack.layers import StackedBatchNorm, StackedLinear


class MLP(nn.Module):
    """One member, as anyone would write it."""

    def __init__(self, inputs: int, hidden: Sequence[int], classes: int, generator: Generator | None = None) -> None:
        super().__init__()
        widths = [inputs, *hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after)]
        self.layers = nn.ModuleList([*layers, nn.Linear(widths[-1], classes)])
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                bound = 1 / math.sqrt(layer.in_features)
                for parameter in layer.parameters():
                    nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:  # [batch, inputs] -> [batch, classes]
        for layer in self.layers:
            x = layer(x)
            if isinstance(layer, nn.BatchNorm1d):
                x = F.relu(x)
        return x


class StackedMLP(nn.Module):
    """All members at once; activations are kept as [members, features, batch]."""

    def __init__(
        self,
        members: int,
        inputs: int,
        hidden: Sequence[int],
        classes: int,
        linear: Callable[[int, int], nn.Module] | None = None,  # instead of an ordinary linear layer per member
    ) -> None:
        super().__init__()
        widths = [inputs, *hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers.append(linear(before, after) if linear else StackedLinear(members, before, after, bias=False))
            layers.append(StackedBatchNorm(members, after, relu=True))
        layers.append((linear or partial(StackedLinear, members))(widths[-1], classes))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:  # [members, batch, inputs] -> [members, batch, classes]
        y: Tensor = self.layers(x.transpose(1, 2))
        return y.transpose(1, 2)

    def gradients(self, inputs: Tensor, labels: Tensor, batch_size: int) -> tuple[Tensor, list[Tensor]]:
        """The members' losses and every parameter's gradient, without autograd; compiled, for a CPU."""
        *hidden, last = list[Any](self.layers)
        return mlp_gradients(list(zip(hidden[::2], hidden[1::2], strict=True)), last, inputs, labels, batch_size)


def batch_ensemble_mlp(ensembles: int, members: int, inputs: int, hidden: Sequence[int], classes: int) -> StackedMLP:
    """So many BatchEnsembles of so many members each."""
    linear = partial(BatchEnsembleLinear, ensembles, members)
    return StackedMLP(ensembles * members, inputs, hidden, classes, linear)
