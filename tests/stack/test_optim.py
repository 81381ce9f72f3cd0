"""Per-member optimizers against one `torch.optim` per member."""

from typing import Any

import pytest
import torch

from ensgap.errors import UserError
from ensgap.stack.optim import OptimizerConfig, OptimizerName, StackOptimizer


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_different_settings_in_one_stack_do_not_mix(name: OptimizerName) -> None:
    torch.manual_seed(0)
    lr, decay = torch.tensor([0.1, 0.1, 0.01, 0.05, 0.1]), torch.tensor([0.0, 0.0, 0.1, 0.0, 0.3])
    stacked = [torch.randn(5, 3, 2, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)]
    alone = [[p[m].clone().requires_grad_() for p in stacked] for m in range(5)]
    parameters = [p.clone().requires_grad_() for p in stacked]
    optimizer = StackOptimizer(parameters, OptimizerConfig(name, lr.tolist(), decay.tolist()))
    assert len(optimizer.runs) == 4
    makers: dict[str, Any] = {
        "sgd": lambda p, m: torch.optim.SGD(p, lr=float(lr[m]), momentum=0.9, weight_decay=float(decay[m])),
        "adam": lambda p, m: torch.optim.Adam(p, lr=float(lr[m]), weight_decay=float(decay[m])),
    }
    plain = [makers[name](alone[m], m) for m in range(5)]
    for factor in (1.0, 0.5, 0.25):
        optimizer.set_lr_factor(factor)
        loss = torch.stack([(p.sin() ** 2).sum() for p in parameters]).sum()
        optimizer.step(loss, torch.ones_like(loss))
        for m, opt in enumerate(plain):
            opt.param_groups[0]["lr"] = float(lr[m]) * factor
            opt.zero_grad()
            sum((p.sin() ** 2).sum() for p in alone[m]).backward()  # type: ignore[union-attr]
            opt.step()
    for i, p in enumerate(parameters):
        torch.testing.assert_close(p.detach(), torch.stack([alone[m][i].detach() for m in range(5)]))


def test_wrong_shapes_and_names_are_refused() -> None:
    p = [torch.randn(3, 2, requires_grad=True)]
    with pytest.raises(ValueError, match="4 leading rows"):
        StackOptimizer(p, OptimizerConfig("sgd", [0.1] * 4, [0.1] * 4))
    with pytest.raises(UserError, match="sgd or adam"):
        StackOptimizer(p, OptimizerConfig("lion", [0.1] * 3, [0.1] * 3))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_gradient_in_another_memory_layout_is_not_misread(name: OptimizerName) -> None:
    weight = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    plain = weight.detach().clone().requires_grad_()
    optimizer = StackOptimizer([weight], OptimizerConfig(name, [0.1] * 2, [0.0] * 2))
    reference = torch.optim.SGD([plain], lr=0.1, momentum=0.9) if name == "sgd" else torch.optim.Adam([plain], lr=0.1)
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    for _ in range(2):
        y = torch.bmm(x, weight.transpose(1, 2))
        assert not torch.autograd.grad(y.sum(), weight, retain_graph=True)[0].is_contiguous()
        optimizer.step(y, y.detach())
        reference.zero_grad()
        torch.bmm(x, plain.transpose(1, 2)).square().sum().div(2).backward()
        reference.step()
    torch.testing.assert_close(weight.detach(), plain.detach())
