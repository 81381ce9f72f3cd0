"""Layers over the member axis.

Activations are kept as [members, features, batch]: then one native batch norm serves all members at once, and a linear
layer is one batched matrix product.
"""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F


class StackedLinear(nn.Module):
    """One `nn.Linear` per member, with its default initialisation drawn from the member's own generator."""

    def __init__(self, generators: Sequence[Generator], inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        device, bound = generators[0].device, 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(len(generators), outputs, inputs, device=device))
        self.bias = nn.Parameter(torch.empty(len(generators), outputs, device=device)) if bias else None
        with torch.no_grad():
            for member, generator in enumerate(generators):
                self.weight[member].uniform_(-bound, bound, generator=generator)
                if self.bias is not None:
                    self.bias[member].uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:  # [members, inputs, batch] -> [members, outputs, batch]
        if self.bias is None:
            return torch.bmm(self.weight, x)
        return torch.baddbmm(self.bias.unsqueeze(-1), self.weight, x)


class StackedBatchNorm(nn.Module):
    """One `nn.BatchNorm1d` per member: statistics, running statistics, weight and bias of its own."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, members: int, features: int, device: torch.device, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(members, features, device=device))
        self.bias = nn.Parameter(torch.zeros(members, features, device=device))
        self.register_buffer("running_mean", torch.zeros(members, features, device=device))
        self.register_buffer("running_var", torch.ones(members, features, device=device))

    def forward(self, x: Tensor) -> Tensor:  # [members, features, batch] -> the same
        members, features, batch = x.shape
        y = F.batch_norm(
            x.reshape(1, members * features, batch),
            self.running_mean.view(-1),
            self.running_var.view(-1),
            self.weight.view(-1),
            self.bias.view(-1),
            training=self.training,
            momentum=self.momentum,
            eps=self.eps,
        )
        return y.view(members, features, batch)


def member_state(network: nn.Module, member: int) -> dict[str, Tensor]:
    """One member's weights and buffers, under the names they have in the stack."""
    return {name: value[member].detach().clone() for name, value in network.state_dict().items()}
