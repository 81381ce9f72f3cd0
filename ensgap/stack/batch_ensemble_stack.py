"""A stack of BatchEnsembles, whose members share weights and so train together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from ensgap.stack.batch_ensemble import FastInit, draw_fast_weights, named_layers, rank_one_product, with_biases
from ensgap.stack.optim import OptimizerConfig, _FusedOptimizer
from ensgap.stack.stack import Precision, _autocast, nll_and_gradient


class BatchEnsembleStack:
    """E BatchEnsembles of M members, computed as one batch or, with `loop`, member after member.

    The loop takes an ordinary network with each member's explicit weights, and keeps only one member's activations: for
    convolutions on CPU it takes about as long as a loop over ordinary members. Both ways have the same state.

    Every member has its own mini-batch. Biases, batch norms and fast weights follow the gradient of their own member's
    loss, slow weights the mean over the ensemble's members of theirs, so a learning rate means the same for every M.
    """

    def __init__(
        self,
        network: nn.Module,
        ordinary: Sequence[nn.Module],  # one for each ensemble: its slow weights, and where its biases and norms begin
        generators: Sequence[Generator],  # one for each member: its fast weights
        init: FastInit,
        optimizer: OptimizerConfig,
        device: torch.device,
        precision: Precision = "float32",
        loop: bool = False,
    ) -> None:
        self.members = len(generators) // len(ordinary)
        self.layers = [name for name, _ in named_layers(network)]
        self.slow = {f"{name}weight" for name in self.layers}
        fast = {f"{name}{side}" for name in self.layers for side in "rs"}
        states = [with_biases(one).state_dict() for one in ordinary]
        self.network = network.to(dtype=next(ordinary[0].parameters()).dtype)
        draw_fast_weights(network, init, list(generators))
        for name, value in network.state_dict().items():
            if name not in fast:
                begin = torch.stack([state[name] for state in states])
                value.copy_(begin if name in self.slow else begin.repeat_interleave(self.members, 0))
        network.to(device)
        self.ordinary = ordinary[0].to(device) if loop else None
        self.optimizer = BatchEnsembleOptimizer(dict(network.named_parameters()), self.slow, fast, optimizer)
        self.autocast = _autocast(device, precision)

    def step(self, inputs: Any, labels: Tensor, batch_size: int) -> Tensor:
        """Forward and backward passes, then one fused optimizer step."""
        parameters = dict(self.network.named_parameters())
        if self.ordinary is None:
            self.network.train()
            with self.autocast():
                logits = self.network(inputs)
            nll, gradient = nll_and_gradient(logits, labels)
            found = torch.autograd.grad(logits, list(parameters.values()), gradient.div_(batch_size))
            gradients = dict(zip(parameters, found, strict=True))
        else:
            self.ordinary.train()
            nll, gradients = self._member_gradients(self.ordinary, parameters, inputs, labels, batch_size)
        for name in self.slow:
            gradients[name] = gradients[name] / self.members
        self.optimizer.step(gradients)
        return nll

    def _member_gradients(
        self, ordinary: nn.Module, parameters: Mapping[str, Tensor], inputs: Any, labels: Tensor, batch_size: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        gradients = {name: torch.zeros_like(value) for name, value in parameters.items()}
        losses = []
        for member in range(len(labels)):
            rows = {name: row.requires_grad_() for name, row in self._rows(parameters, member).items()}
            with self.autocast():
                logits = functional_call(ordinary, self._explicit(rows) | self._buffers(member), (inputs[member],))
            nll, gradient = nll_and_gradient(logits.unsqueeze(0), labels[member : member + 1])
            found = torch.autograd.grad(logits, list(rows.values()), gradient[0].div_(batch_size))
            for sums, own in zip(self._rows(gradients, member).values(), found, strict=True):
                sums += own
            losses.append(nll)
        return torch.cat(losses), gradients

    @torch.no_grad()
    def logits(self, inputs: Any) -> Tensor:
        """What every member predicts, in evaluation mode, [members, batch, classes]."""
        with self.autocast():
            if self.ordinary is None:
                found: Tensor = self.network.eval()(inputs)
            else:
                ordinary = self.ordinary.eval()
                states = [self._member(member) for member in range(len(inputs))]
                found = torch.stack([functional_call(ordinary, s, (x,)) for s, x in zip(states, inputs, strict=True)])
        return found.float() if found.dtype == torch.bfloat16 else found

    def set_lr_factor(self, factor: float) -> None:
        """Scale every ensemble's own learning rate."""
        self.optimizer.set_lr_factor(factor)

    def member_state(self, member: int) -> dict[str, Tensor]:
        """Its explicit weights W ∘ (s rᵀ) and all that is its own: what an ordinary network `with_biases` takes."""
        return {name: value.clone() for name, value in self._member(member).items()}

    def parameter_count(self) -> int:
        """Of all members together, shared weights once."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def state_dict(self) -> dict[str, Any]:
        """Slow and fast weights, buffers and optimizer."""
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them up again."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _member(self, member: int) -> dict[str, Tensor]:
        """All of an ordinary network's state."""
        rows = self._rows(dict(self.network.named_parameters()), member)
        return self._explicit(rows) | self._buffers(member)

    def _rows(self, tensors: Mapping[str, Tensor], member: int) -> dict[str, Tensor]:
        """A member's own rows, and its ensemble's slow weights."""
        ensemble = member // self.members
        return {name: t.detach()[ensemble if name in self.slow else member] for name, t in tensors.items()}

    def _explicit(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        found = dict(rows)
        for name in self.layers:
            r, s = found.pop(f"{name}r"), found.pop(f"{name}s")
            found[f"{name}weight"] = rank_one_product(found[f"{name}weight"], r, s)
        return found

    def _buffers(self, member: int) -> dict[str, Tensor]:
        return {name: buffer[member] for name, buffer in self.network.named_buffers()}


class BatchEnsembleOptimizer(_FusedOptimizer):
    """Two groups of parameters for each run of ensembles with equal hyperparameters: fast weights do not decay."""

    def __init__(
        self, parameters: Mapping[str, Tensor], slow: set[str], fast: set[str], config: OptimizerConfig
    ) -> None:
        ensembles, members = len(parameters[next(iter(slow))]), len(parameters[next(iter(fast))])
        size = members // ensembles
        settings = list(zip(config.lr, config.weight_decay, strict=True))
        if len(settings) != members:
            raise ValueError(f"each of the {members} members needs a learning rate, however: {config=}")
        mixed = [e for e in range(ensembles) if len(set(settings[e * size : (e + 1) * size])) != 1]
        if mixed:
            raise ValueError(
                f"members of a BatchEnsemble need one learning rate and one weight decay, however: {settings=} have "
                f"several in the ensembles {mixed} of {size} members"
            )
        starts = [e for e in range(ensembles) if e == 0 or settings[e * size] != settings[(e - 1) * size]]
        self.slices: list[dict[str, slice]] = []
        groups = []
        for start, end in zip(starts, [*starts[1:], ensembles], strict=True):
            for names, place in ((parameters.keys() - fast, start * size), (fast, members + start * size)):
                rows = {n: slice(start, end) if n in slow else slice(start * size, end * size) for n in sorted(names)}
                self.slices.append(rows)
                groups.append((place, [parameters[name].detach()[own] for name, own in rows.items()]))
        undecayed = replace(config, lr=[*config.lr] * 2, weight_decay=[*config.weight_decay, *[0.0] * members])
        super().__init__(undecayed, groups)

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """One step, given the gradient of every parameter."""
        for rows, group in zip(self.slices, self.groups, strict=True):
            self._update(group, [gradients[name][own] for name, own in rows.items()])
