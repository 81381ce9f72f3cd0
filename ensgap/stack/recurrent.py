"""Embedding and LSTM over the member axis."""

import torch
from torch import Tensor, nn


class StackedEmbedding(nn.Module):
    """One `nn.Embedding` per member."""

    def __init__(self, members: int, entries: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, entries, features))

    def forward(self, tokens: Tensor) -> Tensor:  # [members, batch, length] -> [members, batch, length, features]
        members, entries, _ = self.weight.shape
        first = torch.arange(members, device=tokens.device).view(-1, 1, 1) * entries
        return nn.functional.embedding(tokens + first, self.weight.flatten(0, 1))


class StackedLSTM(nn.Module):
    """One bidirectional `nn.LSTM` per member, step by step with one batched matrix product for all members.

    For a GPU: on a CPU the library's kernel, member by member, is faster. Texts are padded behind, and the backward
    direction reads each from its own last token, so padding changes nothing.
    """

    def __init__(self, members: int, inputs: int, hidden: int) -> None:
        super().__init__()
        for ending in ("", "_reverse"):
            for name, shape in (("ih", (4 * hidden, inputs)), ("hh", (4 * hidden, hidden))):
                setattr(self, f"weight_{name}_l0{ending}", nn.Parameter(torch.empty(members, *shape)))
                setattr(self, f"bias_{name}_l0{ending}", nn.Parameter(torch.empty(members, 4 * hidden)))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """[members, batch, length, inputs], lengths [members, batch] -> [members, batch, length, 2 · hidden]."""
        place = torch.arange(x.shape[2], device=x.device)
        own = lengths.unsqueeze(-1)
        reverse = torch.where(place < own, own - 1 - place, place)  # [members, batch, length]
        forward = self._direction(x, "")
        backward = self._direction(_take(x, reverse), "_reverse")
        return torch.cat([forward, _take(backward, reverse)], dim=-1)

    def _direction(self, x: Tensor, ending: str) -> Tensor:
        weight_ih, weight_hh = (getattr(self, f"weight_{name}_l0{ending}") for name in ("ih", "hh"))
        bias = getattr(self, f"bias_ih_l0{ending}") + getattr(self, f"bias_hh_l0{ending}")
        members, batch, length, _ = x.shape
        gates = torch.baddbmm(bias.unsqueeze(1), x.flatten(1, 2), weight_ih.transpose(1, 2))
        steps = gates.view(members, batch, length, -1).unbind(2)
        state = cell = x.new_zeros(members, batch, weight_hh.shape[2])
        states = []
        for step in steps:
            i, f, g, o = torch.baddbmm(step, state, weight_hh.transpose(1, 2)).chunk(4, dim=-1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            state = o.sigmoid() * cell.tanh()
            states.append(state)
        return torch.stack(states, dim=2)


def _take(x: Tensor, places: Tensor) -> Tensor:
    """The steps of every sequence in another order."""
    return x.gather(2, places.unsqueeze(-1).expand_as(x))
