"""Any network as one batched computation: `torch.func.vmap` over stacked parameters and buffers."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel


class VmappedNetwork(nn.Module):
    """A tree of modules like a member's, with a leading member axis on every parameter and buffer.

    Its state has the names of an ordinary member's. Batch norm's statistics are each member's own, and so is a buffer
    that the network replaces instead of changing it in place.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.tree = _stacked(members)

    def forward(self, inputs: Tensor) -> Tensor:  # [members, batch, …] -> [members, batch, …]
        parameters, buffers = dict(self.tree.named_parameters()), dict(self.tree.named_buffers())

        def member(
            own: Mapping[str, Tensor], kept: Mapping[str, Tensor], x: Tensor
        ) -> tuple[Tensor, dict[str, Tensor]]:
            state = {**own, **kept}
            outputs = functional_call(self.tree, state, (x,))
            return outputs, {name: state[name] for name in kept}

        with _kernels_with_rules(inputs.device):
            outputs, after = vmap(member, randomness="different")(parameters, buffers, inputs)
        with torch.no_grad():
            for name, value in after.items():
                if value.data_ptr() != buffers[name].data_ptr():
                    buffers[name].copy_(value)
        found: Tensor = outputs
        return found

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Under the names that an ordinary member's has."""
        return self.tree.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Of such names."""
        return self.tree.load_state_dict(state_dict, strict, assign)


def _stacked(members: Sequence[nn.Module]) -> nn.Module:
    """A copy of the first member with everybody's values; a tensor under two names stays one."""
    tree = copy.deepcopy(members[0])
    parameters = [dict(member.named_parameters(remove_duplicate=False)) for member in members]
    buffers = [dict(member.named_buffers(remove_duplicate=False)) for member in members]
    made: dict[Tensor, Tensor] = {}  # tensors are keys by identity
    for path, module in tree.named_modules():
        prefix = f"{path}." if path else ""
        for name, own in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if own not in made:
                stacked = torch.stack([of[prefix + name].detach() for of in parameters])
                made[own] = nn.Parameter(stacked, own.requires_grad)
            setattr(module, name, made[own])
        for name, own in list(module.named_buffers(recurse=False, remove_duplicate=False)):
            if own not in made:
                made[own] = torch.stack([of[prefix + name] for of in buffers])
            setattr(module, name, made[own])
    return tree


@contextmanager
def _kernels_with_rules(device: torch.device) -> Iterator[None]:
    """Without the fused kernels that vmap would call member by member: inference in torch's transformer layers, and
    attention on a CPU.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" else nullcontext():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
