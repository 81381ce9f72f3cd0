"""A bidirectional LSTM with attention: embedding 128, 256 units a direction; 7,225,988 parameters on GPT-2's tokens.

Padding changes nothing: a text's prediction does not depend on what it is batched with.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ensgap.networks.lstm import Packing, packed_lstm
from ensgap.stack.layers import StackedLinear
from ensgap.stack.recurrent import StackedEmbedding, StackedLSTM


@dataclass(frozen=True)
class TokenBatch:
    """The texts of a batch, or of every member's batch, padded behind."""

    tokens: Tensor  # [batch, length] or [members, batch, length]
    lengths: Tensor  # [batch] or [members, batch]

    def __getitem__(self, member: int) -> "TokenBatch":
        """One member's texts."""
        return TokenBatch(self.tokens[member], self.lengths[member])


class BiLSTM(nn.Module):
    """One member."""

    def __init__(
        self, vocabulary: int, embedding: int, hidden: int, classes: int, generator: Generator | None = None
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True, bidirectional=True)
        self.attention = nn.Linear(2 * hidden, 1, bias=False)
        self.linear = nn.Linear(2 * hidden, classes)
        nn.init.normal_(self.embedding.weight, generator=generator)
        for module, fan in ((self.lstm, hidden), (self.attention, 2 * hidden), (self.linear, 2 * hidden)):
            for parameter in module.parameters():
                nn.init.uniform_(parameter, -1 / math.sqrt(fan), 1 / math.sqrt(fan), generator=generator)

    def forward(self, batch: TokenBatch) -> Tensor:  # -> [batch, classes]
        packing = Packing.of(batch.lengths.cpu())
        text, place, mirror = (t.to(batch.tokens.device) for t in (packing.sequence, packing.place, packing.mirror))
        x = self.embedding(batch.tokens[text, place])  # [items, embedding]
        weights = list(self.lstm.parameters())
        backward = packed_lstm(x[mirror], weights[4:], packing)[mirror]
        states = torch.cat([packed_lstm(x, weights[:4], packing), backward], dim=1)  # [items, 2 · hidden]
        weight = self.attention(states).tanh().exp()  # of a softmax over each text; tanh keeps it from overflowing
        total = weight.new_zeros(len(batch.lengths), 1).index_add(0, text, weight)
        context = states.new_zeros(len(batch.lengths), states.shape[1]).index_add(0, text, weight * states) / total
        logits: Tensor = self.linear(context)
        return logits


class StackedBiLSTM(nn.Module):
    """All members at once."""

    def __init__(self, members: int, vocabulary: int, embedding: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.embedding = StackedEmbedding(members, vocabulary, embedding)
        self.lstm = StackedLSTM(members, embedding, hidden)
        self.attention = StackedLinear(members, 2 * hidden, 1, bias=False)
        self.linear = StackedLinear(members, 2 * hidden, classes)

    def forward(self, batch: TokenBatch) -> Tensor:  # -> [members, batch, classes]
        states = self.lstm(self.embedding(batch.tokens), batch.lengths)  # [members, batch, length, 2 · hidden]
        scores = (states @ self.attention.weight.unsqueeze(1).transpose(2, 3)).squeeze(-1)
        inside = torch.arange(states.shape[2], device=states.device) < batch.lengths.unsqueeze(-1)
        weights = F.softmax(scores.tanh().masked_fill(~inside, -torch.inf), dim=-1)  # over a text's own tokens
        context = (weights.unsqueeze(-2) @ states).squeeze(-2)  # [members, batch, 2 · hidden]
        logits: Tensor = self.linear(context.transpose(1, 2))
        return logits.transpose(1, 2)
