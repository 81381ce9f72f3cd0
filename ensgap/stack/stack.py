"""A stack of members in two ways behind one interface: one batched computation, or a loop over ordinary networks.

Which is faster depends on the network and the device; both give the same members.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from ensgap import gaussian
from ensgap.stack.noise import MemberNoise
from ensgap.stack.optim import MemberOptimizer, OptimizerConfig, StackOptimizer
from ensgap.stack.products import only_torch

Kernels = Literal["auto", "batched", "loop"]
Precision = Literal["float32", "bfloat16"]
Gradients = Callable[[Any, Tensor, int], tuple[Tensor, list[Tensor]]]
"""Of inputs, labels and batch size: the members' losses and all parameters' gradients, as a network may have them
written out for a CPU."""


class Stack(Protocol):
    """All members of all replicates of a trial."""

    def step(self, inputs: Any, labels: Tensor, batch_size: int) -> Tensor:
        """One optimizer step of every member on its own mini-batch; each member's loss, summed over it [members]."""
        ...

    def logits(self, inputs: Any) -> Tensor:
        """What every member predicts, in evaluation mode, [members, batch, classes]."""
        ...

    def set_lr_factor(self, factor: float) -> None:
        """Scale every member's own learning rate."""
        ...

    def member_state(self, member: int) -> dict[str, Tensor]:
        """One member's weights and buffers, under the names they have in an ordinary network."""
        ...

    def parameter_count(self) -> int:
        """Of all members together."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Weights, buffers and optimizer."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them up again."""
        ...


@torch.no_grad()
def nll_and_gradient(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Each member's loss summed over its batch, [members], and its gradient in the logits [members, batch, classes].

    The gradient is softmax minus one-hot: no member's depends on the others, and written out it spares autograd a dozen
    nodes. Floating-point labels are targets of a regression.
    """
    if labels.is_floating_point():
        return gaussian.nll_and_gradient(logits, labels)
    log_probs = logits.float().log_softmax(2) if logits.dtype != torch.float64 else logits.log_softmax(2)
    own = labels.unsqueeze(2)
    nll = -log_probs.gather(2, own).sum((1, 2))
    gradient = log_probs.exp_().scatter_add_(2, own, log_probs.new_full((), -1.0).expand_as(own))
    return nll, gradient.to(logits.dtype)


@torch.no_grad()
def smooth(gradient: Tensor, labels: Tensor, amounts: Tensor) -> None:
    """Make the gradient [members, batch, classes] that of smoothed labels: an amount [members, 1, 1] of each is spread
    evenly over all classes. The NLL that is reported stays that of the labels themselves.
    """
    own = labels.unsqueeze(-1)
    gradient.scatter_add_(-1, own, amounts.to(gradient.dtype).expand_as(own)).sub_(amounts / gradient.shape[-1])


class BatchedStack:
    """One network whose parameters and buffers have a leading member axis."""

    def __init__(
        self,
        network: nn.Module,
        members: Sequence[nn.Module],
        optimizer: OptimizerConfig,
        device: torch.device,
        precision: Precision = "float32",
        noise: MemberNoise | None = None,  # of networks that draw random numbers in training
    ) -> None:
        self.network = network.to(device=device, dtype=next(members[0].parameters()).dtype).train()
        states = [member.state_dict() for member in members]
        wanted = network.state_dict().keys()
        network.load_state_dict({name: torch.stack([state[name] for state in states]) for name in wanted})
        self.optimizer = StackOptimizer(trained_parameters(network), optimizer)
        self.autocast = _autocast(device, precision)
        self.noise = noise
        # compiled for a CPU; mixed precision is autocast's, which a network's own gradients do not go through
        compiled = device.type == "cpu" and precision == "float32"
        self.written_out: Gradients | None = getattr(network, "gradients", None) if compiled else None
        self.smoothing = _smoothing(optimizer, device)
        if self.smoothing is not None:
            self.written_out = None

    def step(self, inputs: Any, labels: Tensor, batch_size: int) -> Tensor:
        """One batched forward and backward pass, one fused optimizer step."""
        _set_training(self.network, True)
        if self.written_out is not None and not only_torch():
            nll, gradients = self.written_out(inputs, labels, batch_size)
            self.optimizer.update(gradients)
            return nll
        with self.autocast(), self.noise.batched() if self.noise else nullcontext():
            logits = self.network(inputs)
        nll, gradient = nll_and_gradient(logits, labels)
        if self.smoothing is not None:
            smooth(gradient, labels, self.smoothing)
        self.optimizer.step(logits, gradient.div_(batch_size))
        return nll

    @torch.no_grad()
    def logits(self, inputs: Any) -> Tensor:
        """One batched forward pass."""
        _set_training(self.network, False)
        with self.autocast():
            found: Tensor = self.network(inputs)
        return found.float() if found.dtype == torch.bfloat16 else found

    def set_lr_factor(self, factor: float) -> None:
        """Scale every member's own learning rate."""
        self.optimizer.set_lr_factor(factor)

    def member_state(self, member: int) -> dict[str, Tensor]:
        """A slice of everything."""
        return {name: value[member].detach().clone() for name, value in self.network.state_dict().items()}

    def parameter_count(self) -> int:
        """Of all members together."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def state_dict(self) -> dict[str, Any]:
        """Weights, buffers and optimizer."""
        found = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
        return found | ({"noise": self.noise.state_dict()} if self.noise else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them up again."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.noise:
            self.noise.load_state_dict(state["noise"])


class LoopStack:
    """Ordinary networks, each with a fused optimizer of its own; only one member's activations live at a time."""

    def __init__(
        self,
        members: Sequence[nn.Module],
        optimizer: OptimizerConfig,
        device: torch.device,
        precision: Precision = "float32",
        noise: MemberNoise | None = None,  # of networks that draw random numbers in training
    ) -> None:
        self.networks = nn.ModuleList(member.to(device) for member in members).train()
        self.optimizers = [
            MemberOptimizer(trained_parameters(network), optimizer, m) for m, network in enumerate(self.networks)
        ]
        self.autocast = _autocast(device, precision)
        self.noise = noise
        self.smoothing = _smoothing(optimizer, device)

    def step(self, inputs: Any, labels: Tensor, batch_size: int) -> Tensor:
        """Forward, backward and optimizer step of one member after the other."""
        _set_training(self.networks, True)
        found = []
        for m, (network, optimizer) in enumerate(zip(self.networks, self.optimizers, strict=True)):
            with self.noise.of(m) if self.noise else nullcontext():  # its backward pass may do forward passes again
                with self.autocast():
                    logits = call_member(network, inputs[m])
                nll, gradient = nll_and_gradient(logits.unsqueeze(0), labels[m : m + 1])
                if self.smoothing is not None:
                    smooth(gradient, labels[m : m + 1], self.smoothing[m : m + 1])
                optimizer.step(logits, gradient[0].div_(batch_size))
            found.append(nll)
        return torch.cat(found)

    @torch.no_grad()
    def logits(self, inputs: Any) -> Tensor:
        """Member after member."""
        _set_training(self.networks, False)
        with self.autocast():
            found = torch.stack([call_member(network, inputs[m]) for m, network in enumerate(self.networks)])
        return found.float() if found.dtype == torch.bfloat16 else found

    def set_lr_factor(self, factor: float) -> None:
        """Scale every member's own learning rate."""
        for optimizer in self.optimizers:
            optimizer.set_lr_factor(factor)

    def member_state(self, member: int) -> dict[str, Tensor]:
        """A copy of its state."""
        return {name: value.detach().clone() for name, value in self.networks[member].state_dict().items()}

    def parameter_count(self) -> int:
        """Of all members together."""
        return sum(parameter.numel() for parameter in self.networks.parameters())

    def state_dict(self) -> dict[str, Any]:
        """Weights, buffers and optimizers."""
        found = {"networks": self.networks.state_dict(), "optimizers": [o.state_dict() for o in self.optimizers]}
        return found | ({"noise": self.noise.state_dict()} if self.noise else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them up again."""
        self.networks.load_state_dict(state["networks"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        if self.noise:
            self.noise.load_state_dict(state["noise"])


def _smoothing(optimizer: OptimizerConfig, device: torch.device) -> Tensor | None:  # -> [members, 1, 1]
    if optimizer.label_smoothing is None or not any(optimizer.label_smoothing):
        return None
    return torch.tensor(list(optimizer.label_smoothing), device=device).view(-1, 1, 1)


def _set_training(network: nn.Module, training: bool) -> None:
    """Unless it is so: `nn.Module.train` visits every layer, which is 4% of a small network's step."""
    if network.training != training:
        network.train(training)


def call_member(network: nn.Module, inputs: Any) -> Tensor:
    """An ordinary network on one member's batch; a tuple holds its arguments."""
    found: Tensor = network(*inputs) if isinstance(inputs, tuple) else network(inputs)
    return found


def trained_parameters(network: nn.Module) -> list[Tensor]:
    """Those that are not frozen."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def _autocast(device: torch.device, precision: Precision) -> Callable[[], Any]:
    return lambda: torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=False)
