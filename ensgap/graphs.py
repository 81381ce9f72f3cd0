"""Graphs in flat storage: a mini-batch of all members is one block-diagonal graph, formed by index arithmetic."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class GraphBatch:
    """Graphs grouped by member, and the rows of their normalised adjacency; all in flat arrays."""

    members: int
    node_labels: Tensor  # [nodes]
    graph_of_node: Tensor  # [nodes], 0…graphs−1 over all members
    neighbours: Tensor  # [entries]: the column of each entry, row by row
    weights: Tensor  # [entries]: its value
    row_starts: Tensor  # [nodes]: where a node's entries start
    graph_starts: Tensor  # [graphs]: where a graph's nodes start
    node_bounds: tuple[int, ...]  # [members + 1]: where a member's nodes start and end
    entry_bounds: tuple[int, ...]

    def propagate(self, x: Tensor) -> Tensor:  # [nodes, features] -> the same
        """The adjacency times node features."""
        weights = self.weights if self.weights.dtype == x.dtype else self.weights.to(x.dtype)
        return F.embedding_bag(self.neighbours, x, self.row_starts, mode="sum", per_sample_weights=weights)

    @cached_property
    def row_sums(self) -> Tensor:
        """Of the adjacency [nodes]."""
        return self.propagate(self.weights.new_ones(len(self.row_starts), 1)).squeeze(1)

    def sum_nodes(self, x: Tensor) -> Tensor:  # [nodes, features] -> [graphs, features]
        """The sum over each graph's nodes."""
        every = torch.arange(len(x), device=x.device)
        return F.embedding_bag(every, x, self.graph_starts, mode="sum")

    @cached_property
    def member_of_node(self) -> Tensor:
        """[nodes]."""
        per_member = len(self.graph_starts) // self.members
        return self.graph_of_node.div(per_member, rounding_mode="floor")

    @cached_property
    def slot_of_node(self) -> Tensor:
        """A node's place among its member's nodes [nodes]."""
        starts = torch.tensor(self.node_bounds[:-1]).to(self.node_labels.device, non_blocking=True)
        return torch.arange(len(self.node_labels), device=starts.device) - starts[self.member_of_node]

    @property
    def longest(self) -> int:
        """The nodes of the member that has most."""
        return max(b - a for a, b in pairwise(self.node_bounds))

    def __getitem__(self, member: int) -> "GraphBatch":
        """One member's part, as a batch of its own."""
        graphs = len(self.graph_starts) // self.members
        first, last = self.node_bounds[member], self.node_bounds[member + 1]
        low, high = self.entry_bounds[member], self.entry_bounds[member + 1]
        own = slice(member * graphs, (member + 1) * graphs)
        return GraphBatch(
            members=1,
            node_labels=self.node_labels[first:last],
            graph_of_node=self.graph_of_node[first:last] - member * graphs,
            neighbours=self.neighbours[low:high] - first,
            weights=self.weights[low:high],
            row_starts=self.row_starts[first:last] - low,
            graph_starts=self.graph_starts[own] - first,
            node_bounds=(0, last - first),
            entry_bounds=(0, high - low),
        )


@dataclass(frozen=True)
class GraphPoints:
    """Graphs as points: their nodes, and the normalised adjacency of each as rows of entries, one after the other."""

    node_labels: Tensor  # [nodes]
    neighbours: Tensor  # [entries]: within the graph, from 0
    weights: Tensor  # [entries]
    degrees: Tensor  # [nodes]: entries of a node's row
    node_starts: Tensor  # [graphs + 1]; these two stay on the CPU, where batches are planned
    entry_starts: Tensor  # [graphs + 1]
    labels: Tensor  # [graphs]

    def __len__(self) -> int:
        return len(self.labels)

    def gather(self, index: Tensor) -> GraphBatch:  # [members, batch]
        """The graphs of all members as one block-diagonal graph."""
        nodes = _Pieces.of(self.node_starts, index.cpu(), self.labels.device)
        entries = _Pieces.of(self.entry_starts, index.cpu(), self.labels.device)
        rows = self.degrees[nodes.places].cumsum(0)
        return GraphBatch(
            members=len(index),
            node_labels=self.node_labels[nodes.places],
            graph_of_node=nodes.piece,
            neighbours=self.neighbours[entries.places] + nodes.begins[entries.piece],
            weights=self.weights[entries.places],
            row_starts=F.pad(rows[:-1], (1, 0)),
            graph_starts=nodes.begins,
            node_bounds=nodes.bounds,
            entry_bounds=entries.bounds,
        )

    def subset(self, index: Tensor) -> Self:
        """Just some of the graphs."""
        device = self.labels.device
        nodes = _Pieces.of(self.node_starts, index.cpu().unsqueeze(1), device)
        entries = _Pieces.of(self.entry_starts, index.cpu().unsqueeze(1), device)
        return type(self)(
            self.node_labels[nodes.places],
            self.neighbours[entries.places],
            self.weights[entries.places],
            self.degrees[nodes.places],
            torch.tensor(nodes.bounds),
            torch.tensor(entries.bounds),
            self.labels[index.to(device)],
        )

    def to(self, device: torch.device) -> Self:
        """On a device."""
        names = ("node_labels", "neighbours", "weights", "degrees", "labels")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


@dataclass(frozen=True)
class _Pieces:
    """Some of the pieces that lie one after the other in a flat array, planned on the CPU so that no GPU waits."""

    places: Tensor  # [items]: where the items of the chosen pieces lie
    piece: Tensor  # [items]: which chosen piece an item is of
    begins: Tensor  # [pieces]: where a piece starts in the new order
    bounds: tuple[int, ...]  # [members + 1]: where a member's items start and end

    @classmethod
    def of(cls, starts: Tensor, chosen: Tensor, device: torch.device) -> Self:  # chosen: [members, pieces of each]
        flat = chosen.flatten()
        sizes = starts[flat + 1] - starts[flat]
        begins = sizes.cumsum(0) - sizes
        bounds = (0, *sizes.view(chosen.shape).sum(1).cumsum(0).tolist())
        sizes, begins, origin = (t.to(device, non_blocking=True) for t in (sizes, begins, starts[flat] - begins))
        pieces = torch.arange(len(flat), device=device)
        piece = torch.repeat_interleave(pieces, sizes, output_size=bounds[-1])
        return cls(torch.arange(bounds[-1], device=device) + origin[piece], piece, begins, bounds)


def graph_points(
    graph_of_node: np.ndarray, node_labels: np.ndarray, edges: np.ndarray, labels: np.ndarray
) -> GraphPoints:
    """From nodes in graph order and undirected edges [2, edges], given in both directions: adds self-loops and
    normalises symmetrically, D^(−1/2) (A + I) D^(−1/2).
    """
    nodes = len(node_labels)
    loops = np.arange(nodes)
    pairs = np.unique(
        np.concatenate([edges[0] * nodes + edges[1], loops * nodes + loops])
    )  # sorted by row, then column
    rows, columns = pairs // nodes, pairs % nodes
    degrees = np.bincount(rows, minlength=nodes)
    weights = 1 / np.sqrt(degrees[rows] * degrees[columns])
    graphs = len(labels)
    node_starts = np.concatenate([[0], np.bincount(graph_of_node, minlength=graphs).cumsum()])
    entry_starts = np.concatenate([[0], np.bincount(graph_of_node[rows], minlength=graphs).cumsum()])
    within = columns - node_starts[graph_of_node[rows]]
    arrays = (node_labels, within, weights, degrees, node_starts, entry_starts, labels)
    return GraphPoints(*(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays))
