"""What stacks are measured and tested against: a plain loop over ordinary `nn.Module`s, one `torch.optim` each."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ensgap.networks.bilstm import BiLSTM, TokenBatch
from ensgap.networks.wide_resnet import WideResNet
from ensgap.points import Points, Prepare, as_they_are
from ensgap.train import TrainConfig, batch_bounds, lr_factor


class PlainBiLSTM(nn.Module):
    """The BiLSTM as anyone would write it: torch's own LSTM on packed texts."""

    def __init__(self, ours: BiLSTM) -> None:
        super().__init__()
        self.embedding, self.lstm, self.attention, self.linear = ours.embedding, ours.lstm, ours.attention, ours.linear

    def forward(self, batch: TokenBatch) -> Tensor:  # -> [batch, classes]
        rnn = nn.utils.rnn
        embedded = self.embedding(batch.tokens)
        packed = rnn.pack_padded_sequence(embedded, batch.lengths, batch_first=True, enforce_sorted=False)
        states, _ = rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)  # [batch, length, 2 · hidden]
        inside = torch.arange(states.shape[1]) < batch.lengths.unsqueeze(1)
        scores = self.attention(states).squeeze(-1).tanh().masked_fill(~inside, -torch.inf)
        logits: Tensor = self.linear((scores.softmax(-1).unsqueeze(1) @ states).squeeze(1))
        return logits


class PlainWideResNet(WideResNet):
    """The Wide ResNet as anyone would write it: in torch's default memory layout."""

    def __init__(self, ours: WideResNet) -> None:
        nn.Module.__init__(self)
        self.conv, self.blocks, self.bn, self.linear = ours.conv, ours.blocks, ours.bn, ours.linear
        self.to(memory_format=torch.contiguous_format)

    def forward(self, x: Tensor) -> Tensor:  # [batch, 3, height, width] -> [batch, classes]
        return self.in_its_layout(x)


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
