"""A multilayer perceptron as a stack: linear (no bias) → batch norm → ReLU for each hidden layer, then linear."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Generator, Tensor, nn

from ensgap.stack import StackedBatchNorm, StackedLinear


class StackedMLP(nn.Module):
    """One MLP per generator."""

    def __init__(self, generators: Sequence[Generator], inputs: int, hidden: Sequence[int], classes: int) -> None:
        super().__init__()
        widths = [inputs, *hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers.append(StackedLinear(generators, before, after, bias=False))
            layers.append(StackedBatchNorm(len(generators), after, generators[0].device, relu=True))
        layers.append(StackedLinear(generators, widths[-1], classes))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:  # [members, batch, inputs] -> [members, batch, classes]
        y: Tensor = self.layers(x.transpose(1, 2))
        return y.transpose(1, 2)
