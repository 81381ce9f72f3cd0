"""An LSTM on packed sequences for the CPU, with its backward pass written out.

Torch's packed LSTM fills a tensor of the whole batch with zeros at every step of its backward pass, and its padded one
computes on padding; both are many times slower on texts of different lengths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ensgap.stack.products import padded, times_t


@dataclass(frozen=True)
class Packing:
    """Sequences sorted by length, longest first, and their items step by step: all first items, all second ones, …."""

    sizes: tuple[int, ...]  # [steps]: how many sequences have that step
    sequence: Tensor  # [items]: which sequence an item is of
    place: Tensor  # [items]: its place in the sequence
    mirror: Tensor  # [items]: the item that stands as far from its sequence's end as this one from its start

    @classmethod
    def of(cls, lengths: Tensor) -> "Packing":
        """Of sequences with these lengths, on the CPU."""
        ordered, order = lengths.sort(descending=True, stable=True)
        steps = torch.arange(int(ordered[0]))
        inside = steps.unsqueeze(1) < ordered  # [steps, sequences]
        place, rank = inside.nonzero(as_tuple=True)
        sizes = inside.sum(1)
        starts = sizes.cumsum(0) - sizes
        mirror = starts[ordered[rank] - 1 - place] + rank
        return cls(tuple(sizes.tolist()), order[rank], place, mirror)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Where a step's items start and end."""
        return list(pairwise([0, *accumulate(self.sizes)]))


class _PackedLSTM(torch.autograd.Function):
    """One layer, one direction; gates in torch's order (input, forget, cell, output)."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(
        ctx: Any, x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, bounds: Sequence[tuple[int, int]]
    ) -> Tensor:  # [items, inputs] -> [items, hidden]
        hidden = weight_hh.shape[1]
        items = padded(len(x))
        x = F.pad(x, (0, 0, 0, items - len(x)))
        gates = times_t(x, weight_ih, bias)  # [items, 4 · hidden]
        states, cells = x.new_zeros(items, hidden), x.new_empty(items, hidden)
        state = cell = x.new_zeros(bounds[0][1], hidden)
        for start, end in bounds:
            size = end - start
            own = gates[start:end]
            if start:
                own += times_t(state[:size], weight_hh)
            own[:, : 2 * hidden].sigmoid_()
            own[:, 2 * hidden : 3 * hidden].tanh_()
            own[:, 3 * hidden :].sigmoid_()
            i, f, g, o = own.chunk(4, dim=1)
            previous, cell, state = cell[:size], cells[start:end], states[start:end]
            torch.mul(f, previous, out=cell)
            cell.addcmul_(i, g)
            torch.tanh(cell, out=state)
            state.mul_(o)
        ctx.save_for_backward(x, weight_ih, weight_hh, gates, states, cells)
        ctx.bounds = bounds
        return states[: bounds[-1][1]]

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_ih, weight_hh, gates, states, cells = ctx.saved_tensors
        bounds, hidden = ctx.bounds, weight_hh.shape[1]
        items, first = bounds[-1][1], bounds[0][1]
        d_gates = torch.empty_like(gates)
        d_gates[items:] = 0
        d_state = d_cell = grad.new_zeros(0, hidden)
        for step in range(len(bounds) - 1, -1, -1):
            start, end = bounds[step]
            i, f, g, o = gates[start:end].chunk(4, dim=1)
            squashed = cells[start:end].tanh()
            here = grad[start:end].clone()
            here[: len(d_state)] += d_state
            into_cell = here * o * (1 - squashed * squashed)
            into_cell[: len(d_cell)] += d_cell
            own = d_gates[start:end]
            torch.mul(into_cell * g, i * (1 - i), out=own[:, :hidden])
            if step:
                before = bounds[step - 1][0]
                torch.mul(
                    into_cell * cells[before : before + end - start], f * (1 - f), out=own[:, hidden : 2 * hidden]
                )
            else:
                own[:, hidden : 2 * hidden].zero_()
            torch.mul(into_cell * i, 1 - g * g, out=own[:, 2 * hidden : 3 * hidden])
            torch.mul(here * squashed, o * (1 - o), out=own[:, 3 * hidden :])
            if step:
                d_state, d_cell = times_t(own, weight_hh.T), into_cell.mul_(f)
        previous = torch.zeros_like(states[first:])  # the state that a later item was computed from
        places = torch.cat([torch.arange(a, a + e - s) for (a, _), (s, e) in pairwise(bounds)] or [torch.arange(0)])
        previous[: len(places)] = states[places]
        d_input = times_t(x.T, d_gates.T).T
        d_across = times_t(previous.T, d_gates[first:].T).T
        return times_t(d_gates, weight_ih.T)[:items], d_input, d_across, d_gates.sum(0), None


def packed_lstm(x: Tensor, weights: Sequence[Tensor], packing: Packing) -> Tensor:
    """One direction over packed items [items, inputs] -> [items, hidden]; the weights of `nn.LSTM`, in its order."""
    weight_ih, weight_hh, bias_ih, bias_hh = weights
    found: Tensor = _PackedLSTM.apply(x, weight_ih, weight_hh, bias_ih + bias_hh, packing.bounds)
    return found
