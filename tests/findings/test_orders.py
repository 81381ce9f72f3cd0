"""Orders, from predictions for which what each chooses is known."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ensgap.findings.kwise import cut_nll, emulate, real_orders
from ensgap.findings.order_designs import study_orders
from ensgap.findings.orders import real_sentence, section
from ensgap.findings.searches import Search, find_searches, group_nll
from ensgap.folder import StudyFolder
from ensgap.plans.design_config import EarlyStoppingConfig, TemperatureConfig
from ensgap.spec import TrialSpec
from ensgap.tasks import get_task
from tests.findings.made import nll_at_zero, write_search
from tests.report.test_design_reports import Made, made, write_study


def test_small_orders_choose_another_setting_and_large_ones_the_ensembles(tmp_path: Path) -> None:
    search = Search(write_search(tmp_path / "search"))
    found = emulate(search.log_likelihoods(), search.weight_decays)
    assert [e.order for e in found] == [1, 2, 3, 4]
    assert [e.same_groups.mean for e in found] == [0, 0, 1, 1]
    lost = 0.35 - nll_at_zero(4)
    assert [e.regret_groups.mean for e in found] == pytest.approx([lost, lost, 0, 0])
    assert (found[-1].same.mean, found[-1].same_all, found[-1].regret.mean) == (1, 1, 0)
    assert [e.weight_decay for e in found] == [0.1, 0.1, 0.0, 0.0]
    for e in found:
        assert e.regret.mean == pytest.approx(lost * (1 - e.same.mean))


def test_every_order_chooses_a_setting_that_is_always_best() -> None:
    generator = torch.Generator().manual_seed(0)
    better = -torch.rand(6, 5, 40, generator=generator).double()
    found = emulate(torch.stack([better - 2, better, better - 1]), [0.0, 0.1, 0.2])
    assert all(e.same.mean == e.same_groups.mean == e.same_all == 1 and e.weight_decay == 0.1 for e in found)


def test_a_cut_asks_each_group_about_its_own_chunk() -> None:
    """A group whose loss is its own number is asked about as many points as every other group."""
    nll = torch.arange(4.0).double().view(1, 1, 4, 1).expand(1, 3, 4, 20)
    assert cut_nll(nll, 5) == pytest.approx(1.5)
    one_point = torch.rand(1, 1, 4, 20).double()
    (order, groups), *_ = group_nll(one_point)
    assert order == 1 and torch.equal(groups, -one_point)
    assert not (cut_nll(groups, 5) == cut_nll(groups, 5).mean()).all()  # cuts differ


def test_real_orders_are_compared_with_the_shared_holdout(tmp_path: Path) -> None:
    for holdout in ("2", "3", "shared"):
        write_search(tmp_path / holdout, holdout)
    (family,) = real_orders(list(find_searches(tmp_path)))
    assert [(real.order, real.replicates) for real in family] == [(2, 5), (3, 5), (4, 5)]
    assert family[-1].h_ens == 0 and family[-1].regret.mean == 0
    chosen = {real.h_ens: real.regret.mean for real in family}
    assert chosen[0.1] == pytest.approx(0.35 - nll_at_zero(4))
    said = real_sentence(family)
    assert "nothing at 0, chosen with order " in said and "4 (shared)" in said
    assert f"{0.35 - nll_at_zero(4):.5f} (" in said and " at 0.1, chosen with order 2" in said
    assert real_orders([Search(StudyFolder(tmp_path / "2"))]) == []


@pytest.fixture
def designs(tmp_path: Path) -> Path:
    """Early stopping and temperatures on NCI1, where orders 4 and 2 end with the same predictions and order 3 with
    better ones.
    """

    def test_data(spec: TrialSpec) -> Any:
        assert spec.holdout is not None
        return made(spec, 70 + spec.replicates[0], 100, sharpness=3.0 if spec.holdout.order == 3 else 1.0)

    def stopped(spec: TrialSpec, seed: int) -> Made:
        assert spec.holdout is not None
        rules = ("individual", "shared_epoch", "joint")[: 3 if spec.holdout.order > 1 else 2]
        return {f"{rule}-test": test_data(spec) for rule in rules}

    def scaled(spec: TrialSpec, seed: int) -> Made:
        assert spec.holdout is not None
        holdout = made(spec, spec.replicates[0], 48, spec.holdout.order, sharpness=1.0)
        return {"holdout": holdout, "test": test_data(spec)}

    def details(spec: TrialSpec) -> dict[str, Any]:
        kept = {rule: [[7] * 4] for rule in ("individual", "shared_epoch", "joint")}
        return {"kept": kept, "steps": 1, "pool_steps": 1, "stopped": True, "parameters": 1}

    orders = ("1", "2", "3", "4")
    stopping = EarlyStoppingConfig(val_fractions=(0.05, 0.1), replicates=3, holdouts=orders)
    write_study(tmp_path / "stopping", stopping.plan(get_task("nci1")), stopped, details)
    temperature = TemperatureConfig(val_fractions=(0.1,), replicates=3, holdouts=orders[1:])
    write_study(tmp_path / "temperature", temperature.plan(get_task("nci1")), scaled)
    return tmp_path


def test_designs_are_compared_with_the_shared_holdout_replicate_by_replicate(designs: Path) -> None:
    cells = study_orders(StudyFolder(designs / "stopping"))
    assert [(c.share, c.order, c.method) for c in cells] == [
        (share, order, "individual" if order == 1 else "joint") for share in (0.05, 0.1) for order in (1, 2, 3, 4)
    ]
    for cell in cells:
        if cell.order == 4:
            assert not cell.difference
        else:
            assert cell.difference["nll"].verdict == ("negative" if cell.order == 3 else "zero")
    shared, third = cells[3], cells[2]
    assert third.difference["nll"].mean == pytest.approx(third.figures["nll"].mean - shared.figures["nll"].mean)


def test_the_section(designs: Path, tmp_path: Path) -> None:
    assert section(tmp_path / "nothing", tmp_path / "figures") is None
    found = section(designs, tmp_path / "figures")
    assert found is not None
    assert "in 2 of 4 cells, a higher one in 0" in found.text
    assert "A joint temperature**: against a shared holdout" in found.text
    assert "in 2 of 4 cells with joint early stopping (a higher one in 0)" in found.conclusion
    write_search(designs / "search")
    found = section(designs, tmp_path / "figures")
    assert found is not None
    assert "90% agreement takes order" in found.text
    assert found.figure.exists()
