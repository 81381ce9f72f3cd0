"""Per-member optimizers against one `torch.optim` per member."""

from typing import Any

import pytest
import torch

from ensgap.errors import UserError
from ensgap.stack import StackOptimizer
from ensgap.stack.optim import OptimizerName


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_different_settings_in_one_stack_do_not_mix(name: OptimizerName) -> None:
    torch.manual_seed(0)
    lr, decay = torch.tensor([0.1, 0.1, 0.01, 0.05, 0.1]), torch.tensor([0.0, 0.0, 0.1, 0.0, 0.3])
    stacked = [torch.randn(5, 3, 2, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)]
    alone = [[p[m].clone().requires_grad_() for p in stacked] for m in range(5)]
    parameters = [p.clone().requires_grad_() for p in stacked]
    optimizer = StackOptimizer(parameters, name, lr, decay)
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
        StackOptimizer(p, "sgd", torch.ones(4), torch.ones(4))
    with pytest.raises(UserError, match="sgd or adam"):
        StackOptimizer(p, "lion", torch.ones(3), torch.ones(3))  # type: ignore[arg-type]
