"""Networks of layers whose stacked form is known, read from their forward pass: perceptrons, however they are written.

A symbolic trace must consist of linear layers, batch norms, dropout and operations on single numbers; anything else is
left to vmap.
"""

import copy
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ensgap.stack.layers import StackedBatchNorm, StackedLinear

POINTWISE_MODULES = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.LogSigmoid,
    nn.Mish,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.Sigmoid,
    nn.SiLU,
    nn.Softplus,
    nn.Tanh,
)
POINTWISE_FUNCTIONS = {
    *(F.elu, F.gelu, F.hardswish, F.leaky_relu, F.mish, F.relu, F.relu6, F.selu, F.sigmoid, F.silu, F.softplus, F.tanh),
    *(torch.relu, torch.sigmoid, torch.tanh, torch.add, torch.mul, torch.sub),
    *(operator.add, operator.mul, operator.neg, operator.sub, operator.truediv),
}
OUT_OF_PLACE = {operator.iadd: operator.add, operator.imul: operator.mul, operator.isub: operator.sub}
POINTWISE_METHODS = {"add", "mul", "relu", "sigmoid", "sub", "tanh"}


class UnknownLayerError(Exception):
    """The network has something whose stacked form is not known."""


class StackedDropout(nn.Module):
    """Dropout of every member, drawn in the order in which an ordinary network's would be."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:  # [members, features, batch] -> the same
        if not self.training or self.p == 0:
            return x
        if self.p == 1:
            return x * 0
        members, features, batch = x.shape
        kept = x.new_empty(members, batch, features).bernoulli_(1 - self.p).div_(1 - self.p)
        return x * kept.transpose(1, 2)


class CountingBatchNorm(StackedBatchNorm):
    """As a stacked batch norm, with the count of batches that an ordinary one keeps."""

    num_batches_tracked: Tensor

    def __init__(self, members: int, ordinary: nn.BatchNorm1d) -> None:
        super().__init__(members, ordinary.num_features)
        self.eps, self.momentum = ordinary.eps, ordinary.momentum or 0.0
        self.register_buffer("num_batches_tracked", torch.zeros(members, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.num_batches_tracked.add_(1)
        return super().forward(x)


class TracedNetwork(nn.Module):
    """The same graph of operations on stacked layers; activations are kept as [members, features, batch].

    Its state has the names of an ordinary member's.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        graph, modules = _trace(members[0])
        self.flattens = _drop_flattening(graph, members[0])
        named = dict(members[0].named_parameters())
        for node in graph.nodes:
            if node.op == "call_module" and node.target not in modules:
                modules[node.target] = _stacked(members[0].get_submodule(node.target), len(members))
            elif not _known(node):
                raise UnknownLayerError(f"the stacked form of {node.target} is not known")
        _fuse_relu(graph, modules)
        self.layers = fx.GraphModule(modules, graph).to(dtype=next(iter(named.values())).dtype)
        states = [member.state_dict() for member in members]
        own = dict(self.layers.named_parameters())
        if own.keys() != named.keys() or self.layers.state_dict().keys() != states[0].keys():
            raise UnknownLayerError("it has parameters outside these layers, or shared by them")
        self.load_state_dict({name: torch.stack([state[name] for state in states]) for name in states[0]})
        for name, parameter in own.items():
            parameter.requires_grad_(named[name].requires_grad)

    def forward(self, x: Tensor) -> Tensor:  # [members, batch, …] -> [members, batch, outputs]
        if x.dim() != 3 and not self.flattens:
            raise UnknownLayerError(f"it does not flatten points of shape {tuple(x.shape[2:])}")
        y: Tensor = self.layers(x.flatten(2).transpose(1, 2))
        return y.transpose(1, 2)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Under the names that an ordinary member's has."""
        return self.layers.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Of such names."""
        return self.layers.load_state_dict(state_dict, strict, assign)


def _trace(member: nn.Module) -> tuple[fx.Graph, dict[str, nn.Module]]:
    """Its operations, the same in both modes; calls of F.dropout, in which a trace fixes the mode, become modules."""
    graphs, modules = [], dict[str, nn.Module]()
    for training in (True, False):
        graph = fx.Tracer().trace(copy.deepcopy(member).train(training))
        for node in graph.nodes:  # what a stacked layer returned, its backward pass needs
            node.target = OUT_OF_PLACE.get(node.target, node.target)
            node.kwargs = {name: value for name, value in node.kwargs.items() if name != "inplace"}
        for node in [node for node in graph.nodes if node.target is F.dropout]:
            given = dict(zip(("input", "p", "training"), node.args, strict=False)) | node.kwargs
            if given.get("training", True) is not training:
                raise UnknownLayerError("its dropout does not follow its mode")
            name = f"functional_{node.name}"
            modules[name] = StackedDropout(given.get("p", 0.5))
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.create_node("call_module", name, (given["input"],)))
            graph.erase_node(node)
        graphs.append(graph)
    if str(graphs[0]) != str(graphs[1]):
        raise UnknownLayerError("it does something else in training")
    return graphs[0], modules


def _drop_flattening(graph: fx.Graph, member: nn.Module) -> bool:
    """Leave out what flattens points, because the input is flattened; whether it is used in no other way."""
    first, *others = [node for node in graph.nodes if node.op == "placeholder"]
    if others:
        raise UnknownLayerError("it takes several inputs")
    modules = dict(member.named_modules(remove_duplicate=False))
    flattening = [node for node in graph.nodes if _flattens(node, modules)]
    only = all(user in flattening for user in first.users)
    for node in flattening:
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    return only


def _flattens(node: fx.Node, modules: Mapping[Any, nn.Module]) -> bool:
    if node.op == "call_module":
        module = modules.get(node.target)
        return isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1)
    dims = (*node.args[1:], *node.kwargs.values())
    return node.target in (torch.flatten, "flatten") and dims == (1,)


def _known(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in POINTWISE_METHODS
    return node.op in ("placeholder", "output", "call_module") or node.target in POINTWISE_FUNCTIONS


def _stacked(module: nn.Module, members: int) -> nn.Module:
    """A layer of all members, in place of an ordinary one."""
    if type(module) is nn.Linear:
        return StackedLinear(members, module.in_features, module.out_features, module.bias is not None)
    if type(module) is nn.BatchNorm1d and module.affine and module.track_running_stats and module.momentum is not None:
        return CountingBatchNorm(members, module)
    if type(module) is nn.Dropout:
        return StackedDropout(module.p)
    if type(module) in POINTWISE_MODULES:
        pointwise = copy.deepcopy(module)
        if hasattr(pointwise, "inplace"):
            setattr(pointwise, "inplace", False)  # noqa: B010
        return pointwise
    raise UnknownLayerError(f"the stacked form of {type(module).__name__} is not known")


def _fuse_relu(graph: fx.Graph, modules: Mapping[str, nn.Module]) -> None:
    """A ReLU that is all that follows a batch norm is done by it."""
    calls = [node.target for node in graph.nodes if node.op == "call_module"]
    for node in list(graph.nodes):
        if isinstance(modules.get(node.target), nn.ReLU) or node.target in (F.relu, torch.relu, "relu"):
            before: Any = node.args[0]
            norm = modules.get(before.target)
            if isinstance(norm, CountingBatchNorm) and len(before.users) == 1 and calls.count(before.target) == 1:
                norm.relu = True
                node.replace_all_uses_with(before)
                graph.erase_node(node)
