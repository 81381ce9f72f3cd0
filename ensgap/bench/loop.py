"""What stacks are measured and tested against: a plain loop over ordinary `nn.Module`s, one `torch.optim` each."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ensgap.points import Points, Prepare, as_they_are
from ensgap.train import TrainConfig, batch_bounds, lr_factor


def plain_optimizer(network: nn.Module, config: TrainConfig, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """As anyone would write it, with torch's defaults."""
    if config.optimizer == "adam":
        return torch.optim.Adam(network.parameters(), lr=lr, weight_decay=weight_decay)
    return torch.optim.SGD(network.parameters(), lr=lr, momentum=config.momentum, weight_decay=weight_decay)


def train_loop(
    networks: Sequence[nn.Module],
    points: Points,
    train_index: Tensor,  # [members, points]
    config: TrainConfig,
    lr: Sequence[float],
    weight_decay: Sequence[float],
    generators: Sequence[Generator],
    prepare: Prepare = as_they_are,
) -> None:
    """Train member after member, each with its own mini-batches in the order of its own generator."""
    for member, network in enumerate(networks):
        optimizer = plain_optimizer(network, config, lr[member], weight_decay[member])
        own = train_index[member]
        network.train()
        for epoch in range(config.epochs):
            for group in optimizer.param_groups:
                group["lr"] = lr[member] * lr_factor(config.schedule, epoch, config.epochs)
            order = own[torch.randperm(len(own), generator=generators[member])]
            for start, end in batch_bounds(len(own), config.batch_size):
                index = order[start:end]
                inputs = prepare(points.gather(index.unsqueeze(0)), generators[member : member + 1])[0]
                loss = F.cross_entropy(network(inputs), points.labels[index], reduction="sum")
                optimizer.zero_grad()
                (loss / config.batch_size).backward()
                optimizer.step()
