"""The compiled graph convolution against torch's operations, over more nodes than a block has."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from ensgap.graphs import GraphBatch, graph_points
from ensgap.networks.gcn import convolve
from ensgap.networks.gcn_kernels import BLOCK, rows_of_block
from ensgap.stack.products import torch_only


def _graphs(count: int, nodes: int) -> GraphBatch:
    """Random graphs as one batch of one member."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(nodes, size=(2, 2 * nodes)) + nodes * rng.integers(count, size=2 * nodes)
    edges = np.concatenate([pairs, pairs[::-1]], 1)
    owner = np.repeat(np.arange(count), nodes)
    points = graph_points(owner, np.zeros(count * nodes, dtype=np.int64), edges, np.zeros(count, dtype=np.int64))
    return points.gather(torch.arange(count).unsqueeze(0))[0]


def test_blocks_are_smaller_where_layers_are_wide() -> None:
    assert [rows_of_block(width, width) for width in (5, 64, 128, 300, 2000)] == [BLOCK, BLOCK, 60, 8, 4]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("nodes", "width"), [(BLOCK // 8, 5), (3 * BLOCK // 8, 5), (BLOCK // 8, 150)])
def test_it_is_torchs(nodes: int, width: int, training: bool) -> None:
    torch.manual_seed(0)
    batch = _graphs(7, nodes)
    norm, linear = nn.BatchNorm1d(width).double().train(training), nn.Linear(width, width + 1).double()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.normal_()
    theirs = copy.deepcopy(norm)
    x = (3 * torch.randn(7 * nodes, width, dtype=torch.float64) + 7).requires_grad_()
    ours = convolve(x, norm, linear, batch)
    with torch_only():
        wanted = convolve(x, theirs, linear, batch)
    torch.testing.assert_close(ours, wanted)
    torch.testing.assert_close(norm.state_dict(), theirs.state_dict())
    if training:
        upstream = torch.randn_like(ours)
        found = torch.autograd.grad(ours, [x, *norm.parameters(), *linear.parameters()], upstream)
        expected = torch.autograd.grad(wanted, [x, *theirs.parameters(), *linear.parameters()], upstream)
        torch.testing.assert_close(found, expected)


def test_what_is_not_a_number_stays_so() -> None:
    batch = _graphs(2, 4)
    x = torch.ones(8, 5)
    x[0, 0] = torch.nan
    assert convolve(x, nn.BatchNorm1d(5), nn.Linear(5, 6), batch).isnan().all()
