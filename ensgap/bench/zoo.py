"""Networks as their users write them, which know nothing of stacks: what `vectorize` is tested and measured on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

CLASSES = 5


@dataclass(frozen=True)
class Case:
    """A function that makes the network, and one that draws a batch of so many points for one member."""

    network: Callable[[], nn.Module]
    batch: Callable[[int, Generator], Any]
    points: int = 128  # of a batch when it is measured


def numbers(*shape: int) -> Callable[[int, Generator], Tensor]:
    """Batches of normal numbers."""
    return lambda size, g: torch.randn(size, *shape, generator=g)


def tokens(vocabulary: int, length: int) -> Callable[[int, Generator], Tensor]:
    """Batches of token ids."""
    return lambda size, g: torch.randint(vocabulary, (size, length), generator=g)


def graphs(size: int, g: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """A batch of random graphs as PyG has them: node features, edges, and each node's graph."""
    nodes = torch.randint(3, 9, (size,), generator=g)
    first = nodes.cumsum(0) - nodes
    owner = torch.repeat_interleave(torch.arange(size), nodes)
    ends = (torch.rand(2, 3 * len(owner), generator=g) * nodes[owner].repeat(3)).long() + first[owner].repeat(3)
    return torch.randn(len(owner), 8, generator=g), torch.cat([ends, ends.flip(0)], 1), owner


def resnet18() -> nn.Module:
    """Torchvision's."""
    from torchvision.models import resnet18

    network: nn.Module = resnet18(num_classes=CLASSES)
    return network


def mobilenet() -> nn.Module:
    """Torchvision's MobileNet V3, small: depthwise convolutions, squeeze and excitation, dropout."""
    from torchvision.models import mobilenet_v3_small

    network: nn.Module = mobilenet_v3_small(num_classes=CLASSES)
    return network


def dropout_mlp() -> nn.Module:
    """Torchvision's MLP with batch norm and dropout."""
    from torchvision.ops import MLP

    network: nn.Module = MLP(16, [64, 64, CLASSES], norm_layer=nn.BatchNorm1d, dropout=0.2)
    return network


class TransformerClassifier(nn.Module):
    """Torch's encoder with layer norm and dropout, on token ids with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.position = nn.Parameter(torch.randn(12, 32) / 8)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(32), enable_nested_tensor=False)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.head(self.encoder(self.embedding(ids) + self.position).mean(1))
        return y


def cnn_1d() -> nn.Module:
    """Convolutions over time with batch norm and pooling."""
    return nn.Sequential(
        nn.Conv1d(4, 16, 5, padding=2),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(16, 32, 5, padding=2),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(32, CLASSES),
    )


class GRUClassifier(nn.Module):
    """Torch's GRU, read at its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 32, batch_first=True)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.gru(x)[0][:, -1])
        return y


class GraphClassifier(nn.Module):
    """PyG's GCN with batch norm and jumping knowledge, averaged over a graph's nodes."""

    def __init__(self) -> None:
        from torch_geometric.nn.models import GCN

        super().__init__()
        self.gcn = GCN(8, 32, 3, out_channels=CLASSES, norm="batch_norm", jk="cat")

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        from torch_geometric.nn import global_mean_pool

        y: Tensor = global_mean_pool(self.gcn(x, edge_index), batch)
        return y


def embedding_bag() -> nn.Module:
    """The mean of a text's embeddings, then linear: fastText's classifier."""
    return nn.Sequential(nn.EmbeddingBag(200, 32), nn.Linear(32, CLASSES))


class TiedAutoencoder(nn.Module):
    """Encodes and decodes with one matrix under two names, then classifies what is left."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(x - self.second(self.first(x).tanh()))
        return y


class _Sign(torch.autograd.Function):
    """The sign forward, the slope of a hard tanh backward, in the form that vmap can take."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.sign()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() < 1, grad, 0.0)


class _OldSign(torch.autograd.Function):
    """The same in the older form, which vmap refuses."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() < 1, grad, 0.0)


class BinaryNetwork(nn.Module):
    """Hidden units of -1 and 1, by an autograd function of its own."""

    def __init__(self, sign: Any = _Sign) -> None:
        super().__init__()
        self.hidden, self.norm = nn.Linear(16, 64), nn.BatchNorm1d(64)
        self.head = nn.Linear(64, CLASSES)
        self.sign = sign

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.sign.apply(self.norm(self.hidden(x))))
        return y


ZOO = {
    "torchvision ResNet-18": Case(resnet18, numbers(3, 32, 32), 16),
    "torchvision MobileNetV3": Case(mobilenet, numbers(3, 32, 32), 16),
    "torchvision MLP, dropout": Case(dropout_mlp, numbers(16)),
    "nn.TransformerEncoder": Case(TransformerClassifier, tokens(50, 12), 32),
    "1-D CNN": Case(cnn_1d, numbers(4, 24), 32),
    "GRU classifier": Case(GRUClassifier, numbers(12, 8), 32),
    "PyG GCN": Case(GraphClassifier, graphs, 32),
    "embedding bag": Case(embedding_bag, tokens(200, 10)),
    "tied weights": Case(TiedAutoencoder, numbers(16)),
    "own autograd function": Case(BinaryNetwork, numbers(16)),
    "the same, older form": Case(lambda: BinaryNetwork(_OldSign), numbers(16)),
}
