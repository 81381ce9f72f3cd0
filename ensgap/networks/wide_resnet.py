"""A Wide ResNet (pre-activation): WRN-16-4 has widths 16/64/128/256, 2 blocks a group and 2,748,890 parameters."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ensgap.stack.batch_ensemble import BatchEnsembleConv2d, BatchEnsembleLinear
from ensgap.stack.conv import StackedBatchNorm2d, StackedConv2d
from ensgap.stack.layers import StackedLinear


class _Residual(nn.Module):
    """BN-ReLU-conv twice, beside a shortcut that is a 1×1 convolution where the width changes."""

    bn1: nn.Module
    conv1: nn.Module
    bn2: nn.Module
    conv2: nn.Module
    shortcut: nn.Module | None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(x), inplace=True)
        skip = x if self.shortcut is None else self.shortcut(y)
        y = self.conv1(y)
        found: Tensor = self.conv2(F.relu(self.bn2(y), inplace=True)) + skip
        return found


class Block(_Residual):
    """A block of one member."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None


class WideResNet(nn.Module):
    """One member."""

    def __init__(self, depth: int, widen: int, classes: int, generator: Generator | None = None) -> None:
        super().__init__()
        widths, self.conv = _widths(widen), nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.blocks = nn.Sequential(*(Block(*shape) for shape in _blocks(depth, widths)))
        self.bn = nn.BatchNorm2d(widths[-1])
        self.linear = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        nn.init.zeros_(self.linear.bias)
        self.to(memory_format=torch.channels_last)  # faster on CPU: DESIGN.md, section 5

    def forward(self, x: Tensor) -> Tensor:  # [batch, 3, height, width] -> [batch, classes]
        return self.in_its_layout(x.contiguous(memory_format=torch.channels_last))

    def in_its_layout(self, x: Tensor) -> Tensor:
        """The same, with activations in the input's own memory layout."""
        y = self.blocks(self.conv(x))
        y = F.relu(self.bn(y), inplace=True).mean((2, 3))
        logits: Tensor = self.linear(y)
        return logits


class StackedBlock(_Residual):
    """A block of all members."""

    def __init__(
        self, members: int, inputs: int, outputs: int, stride: int, conv: Callable[..., nn.Module] | None = None
    ) -> None:
        super().__init__()
        conv = conv or partial(StackedConv2d, members)
        self.bn1 = StackedBatchNorm2d(members, inputs)
        self.conv1 = conv(inputs, outputs, 3, stride)
        self.bn2 = StackedBatchNorm2d(members, outputs)
        self.conv2 = conv(outputs, outputs, 3)
        self.shortcut = conv(inputs, outputs, 1, stride) if inputs != outputs else None


class StackedWideResNet(nn.Module):
    """All members at once; activations are kept as [batch, members · channels, height, width]."""

    def __init__(
        self,
        members: int,
        depth: int,
        widen: int,
        classes: int,
        conv: Callable[..., nn.Module] | None = None,  # instead of an ordinary convolution per member
        linear: Callable[[int, int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        widths, self.members = _widths(widen), members
        self.conv = (conv or partial(StackedConv2d, members))(3, 16, 3)
        self.blocks = nn.Sequential(*(StackedBlock(members, *shape, conv) for shape in _blocks(depth, widths)))
        self.bn = StackedBatchNorm2d(members, widths[-1])
        self.linear = (linear or partial(StackedLinear, members))(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:  # [members, batch, 3, height, width] -> [members, batch, classes]
        y = self.blocks(self.conv(x.transpose(0, 1).flatten(1, 2)))
        y = F.relu(self.bn(y), inplace=True).mean((2, 3))  # [batch, members · channels]
        y = y.unflatten(1, (self.members, -1)).permute(1, 2, 0)  # [members, channels, batch]
        logits: Tensor = self.linear(y)
        return logits.transpose(1, 2)


def batch_ensemble_wide_resnet(ensembles: int, members: int, depth: int, widen: int, classes: int) -> StackedWideResNet:
    """So many BatchEnsembles of so many members each."""
    conv, linear = (partial(layer, ensembles, members) for layer in (BatchEnsembleConv2d, BatchEnsembleLinear))
    return StackedWideResNet(ensembles * members, depth, widen, classes, conv, linear)


def _widths(widen: int) -> list[int]:
    return [16, 16 * widen, 32 * widen, 64 * widen]


def _blocks(depth: int, widths: Sequence[int]) -> list[tuple[int, int, int]]:
    """Inputs, outputs and stride of every block."""
    count = (depth - 4) // 6
    shapes = []
    for group, (before, after) in enumerate(pairwise(widths)):
        shapes.append((before, after, 1 if group == 0 else 2))
        shapes += [(after, after, 1)] * (count - 1)
    return shapes
