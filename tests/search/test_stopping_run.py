"""One early-stopped trial without Ray: what each rule keeps, and how it continues."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ensgap import metrics
from ensgap.folder import StudyFolder
from ensgap.holdout import Holdout
from ensgap.predictions import Predictions
from ensgap.search.run import TrialRun
from ensgap.search.stopping_run import StoppingRun
from ensgap.spec import TrialSpec
from ensgap.stopping import Stopping, validation_nll
from ensgap.tasks import get_task
from ensgap.train import TrainConfig

TASK = get_task("digits")
DATA = TASK.load(None)


@pytest.fixture
def stopping(spec: TrialSpec) -> TrialSpec:
    train = TrainConfig("adam", 1e-2, schedule="constant", epochs=60)
    return replace(
        spec,
        phase="holdout",
        setting={"weight_decay": 0.0},
        members=3,
        train=train,
        holdout=Holdout(2, 0.2),
        stopping=Stopping(patience=3, keep_weights=True),
    )


def loaded(folder: StudyFolder, spec: TrialSpec, name: str) -> Predictions:
    return Predictions.load(folder.trial_path(spec) / f"{name}.npz")


def test_a_rule_keeps_what_the_stack_predicted_at_its_best_epoch(stopping: TrialSpec, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    reports = list(StoppingRun(stopping, TASK, DATA.pool, DATA.test, folder).reports(every=1))
    record = folder.find(stopping)
    assert record is not None
    assert record.details["stopped"]
    assert len(reports) == record.epochs < 60
    assert reports[-1]["done"]
    kept, curves = record.details["kept"], torch.tensor(record.details["member_nll"])
    for e in range(2):
        for m in range(3):
            best = kept["individual"][e][m] - 1
            assert curves[best, e, m] == curves[: best + 4, e, m].min()  # what comes after it stopped does not count
    _, joint_nll = validation_nll(loaded(folder, stopping, "joint-holdout"))
    assert joint_nll is not None
    recorded = torch.tensor(record.details["joint_nll"])
    assert joint_nll.tolist() == pytest.approx([recorded[kept["joint"][e][0] - 1, e].item() for e in range(2)])
    own, _ = validation_nll(loaded(folder, stopping, "individual-holdout"))
    at = [[curves[kept["individual"][e][m] - 1, e, m].item() for m in range(3)] for e in range(2)]
    assert own.tolist() == [pytest.approx(row) for row in at]

    # training just so long, without any rule, gives the same test predictions
    for rule, member in (("joint", 0), ("individual", 1), ("individual", 2)):
        epochs = kept[rule][0][member]
        plain = replace(stopping, stopping=None, replicates=(0,), train=replace(stopping.train, epochs=epochs))
        list(TrialRun(plain, TASK, DATA.pool, DATA.test, folder).reports(every=epochs))
        again, first = loaded(folder, plain, "test"), loaded(folder, stopping, f"{rule}-test")
        assert torch.allclose(again.logits[0, member], first.logits[0, member], rtol=1e-3, atol=1e-3)
    assert len(set(kept["individual"][0])) > 1


def test_kept_weights_give_the_kept_predictions(stopping: TrialSpec, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    list(StoppingRun(stopping, TASK, DATA.pool, DATA.test, folder).reports(every=1))
    weights = torch.load(tmp_path / "trials" / stopping.key / "weights-individual.pt", weights_only=True)
    network = TASK.member(None)
    network.load_state_dict(weights["1/2"], strict=False)
    inputs = DATA.test.gather(torch.arange(50).unsqueeze(0))[0]
    with torch.no_grad():
        logits = network.eval()(inputs)
    assert torch.allclose(logits, loaded(folder, stopping, "individual-test").logits[1, 2, :50], atol=1e-4)


def test_an_interrupted_trial_continues_bit_for_bit(stopping: TrialSpec, tmp_path: Path) -> None:
    straight, broken = StudyFolder(tmp_path / "a"), StudyFolder(tmp_path / "b")
    list(StoppingRun(stopping, TASK, DATA.pool, DATA.test, straight).reports(every=1))
    first = StoppingRun(stopping, TASK, DATA.pool, DATA.test, broken, checkpoint_every=1).reports(every=1)
    for _ in range(5):
        next(first)
    list(StoppingRun(stopping, TASK, DATA.pool, DATA.test, broken).reports(every=1))
    a, b = straight.find(stopping), broken.find(stopping)
    assert a is not None and b is not None
    assert a.details == b.details
    for name in a.files:
        assert torch.equal(loaded(straight, stopping, name).logits, loaded(broken, stopping, name).logits)


def test_a_holdout_trial_meets_its_holdout_and_the_test_data(stopping: TrialSpec, tmp_path: Path) -> None:
    spec, folder = replace(stopping, stopping=None, train=TrainConfig(epochs=3)), StudyFolder(tmp_path)
    last = list(TrialRun(spec, TASK, DATA.pool, DATA.test, folder).reports(every=1))[-1]
    holdout, test = loaded(folder, spec, "holdout"), loaded(folder, spec, "test")
    assert holdout.order == 2
    assert test.logits.shape == (2, 3, 899, 10)
    assert float(metrics.evaluate(holdout)["ensemble_nll"].mean()) == pytest.approx(last["ensemble_nll"])


@pytest.mark.parametrize("order", [1, 3])
def test_a_batch_ensemble_keeps_the_pool_too(stopping: TrialSpec, tmp_path: Path, order: int) -> None:
    rules = Stopping(patience=2, rules=("shared_epoch", "joint"))
    spec = replace(stopping, holdout=Holdout(order, 0.2), fast_weights="sign", stopping=rules)
    folder = StudyFolder(tmp_path)
    list(StoppingRun(spec, TASK, DATA.pool, DATA.test, folder).reports(every=1))
    record = folder.find(spec)
    assert record is not None
    assert ("joint-test" in record.files) == (order > 1)
    decisive = "joint" if order > 1 else "shared_epoch"
    assert [name for name in record.files if name.endswith("-pool")] == [f"{decisive}-pool"]
    pool = loaded(folder, spec, f"{decisive}-pool")
    assert pool.logits.shape == (2, 3, 898, 10)
    assert (pool.held.sum(1) <= order).all()
    slow = 64 * 128 + 128 * 128 + 128 * 10
    own = (64 + 128) + (128 + 128) + (128 + 10) + (128 + 128 + 10) + 2 * (128 + 128)  # r and s, biases, norms
    assert record.details["parameters"] == slow + 3 * own
