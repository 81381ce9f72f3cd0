"""The check that is made before a stack of someone's network is trained: it must see what is wrong."""

import pytest
import torch
from torch import Generator, Tensor, nn

from ensgap.stack.check import disagreement
from ensgap.stack.noise import seeded
from ensgap.stack.traced import TracedNetwork
from ensgap.stack.vmapped import VmappedNetwork


def member(seed: int) -> nn.Module:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 3))

    network = seeded(make, seed)
    assert isinstance(network, nn.Module)
    return network


class Swapped(VmappedNetwork):
    """Gives members each other's inputs."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.flip(0))


class Averaged(VmappedNetwork):
    """Right outputs, but gradients divided by the number of members."""

    def forward(self, inputs: Tensor) -> Tensor:
        y = super().forward(inputs)
        return y.detach() + (y - y.detach()) / len(y)


class CountsTwice(VmappedNetwork):
    """Right but for one buffer of one member."""

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.state_dict()["1.num_batches_tracked"][1] += 1
        return super().forward(inputs)


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (VmappedNetwork, None),
        (TracedNetwork, None),
        (Swapped, "outputs"),
        (Averaged, "gradient"),
        (CountsTwice, "buffer"),
    ],
)
def test_the_check_sees_what_differs_from_a_loop(network: type[nn.Module], says: str | None) -> None:
    rows = torch.randn(4, 6, generator=Generator().manual_seed(0))
    found = disagreement(network, [member(1), member(2)], rows, random=True)
    if says is None:
        assert found is None
    else:
        assert found is not None and found.endswith("would differ from a loop's")
    if says in ("gradient", "buffer"):  # the only thing that does
        assert found is not None and found.startswith(f"its {says}")


def test_a_network_that_insists_on_single_precision_is_checked_in_it() -> None:
    class Single(nn.Module):
        """Has a constant in single precision."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.linear(x @ torch.eye(6))
            return y

    rows = torch.randn(4, 6, generator=Generator().manual_seed(0))
    assert disagreement(VmappedNetwork, [Single(), Single()], rows, random=False) is None
    assert disagreement(Swapped, [Single(), Single()], rows, random=False) is not None
