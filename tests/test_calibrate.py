"""Temperature scaling against independent solvers, and the properties each way of scaling must have."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from torch import Tensor

from ensgap import calibrate, metrics
from ensgap.calibrate import SCALINGS, Scaling, Temperatures
from ensgap.errors import UserError
from ensgap.predictions import Predictions

JOINT: tuple[Scaling, ...] = ("joint", "joint_per_member", "pooled")
BOUND = 1024.0
fit = partial(calibrate.fit, bound=BOUND)
"""Bounds so wide that they do not matter where there is an optimum."""
PRIORS = (None, 1.0)


def made(
    seed: int,
    shape: tuple[int, int, int, int] = (2, 3, 198, 4),
    scale: float = 3.0,
    uneven: float = 0.5,
    order: int = 0,
) -> Predictions:
    """Members that see the classes' true logits through noise of their own, each at a scale of its own."""
    g = torch.Generator().manual_seed(seed)
    ensembles, members, points, classes = shape
    truth = 2 * torch.randn(ensembles, 1, points, classes, generator=g, dtype=torch.float64)
    noisy = truth + torch.randn(shape, generator=g, dtype=torch.float64)
    scales = scale * torch.exp(uneven * torch.randn(ensembles, members, 1, 1, generator=g, dtype=torch.float64))
    gumbel = -torch.log(-torch.log(torch.rand(ensembles, points, classes, generator=g, dtype=torch.float64)))
    chunk = torch.arange(points) * members // points
    held = ((chunk - torch.arange(members).unsqueeze(1)) % members) < (order or members)
    return Predictions(
        logits=noisy * scales,
        labels=(truth[:, 0] + gumbel).argmax(-1),
        held=held.repeat(ensembles, 1, 1),
        index=torch.arange(points).repeat(ensembles, 1),
    )


def objective(p: Predictions, e: int, log_t: Tensor, scaling: Scaling, prior: float | None) -> Tensor:
    """What is minimised, of one ensemble, spelled out: log_t [members] or [1]."""
    t, absent = log_t.exp(), ~p.held[e].unsqueeze(-1)  # [members, points, 1]
    count = math.log(p.order)
    if scaling == "pooled":
        mean = p.logits[e].log_softmax(-1).masked_fill(absent, -torch.inf).logsumexp(0) - count
        log_probs = (mean / t).log_softmax(-1)
    else:
        each = (p.logits[e] / t[:, None, None]).log_softmax(-1)
        log_probs = each.masked_fill(absent, -torch.inf).logsumexp(0) - count
    nll = torch.nn.functional.nll_loss(log_probs, p.labels[e], reduction="sum")
    return nll if prior is None else nll + (log_t**2).sum() / (2 * prior**2)


def brent(f: Callable[[float], float], low: float, high: float) -> float:
    return float(minimize_scalar(f, bounds=(low, high), method="bounded", options={"xatol": 1e-11, "maxiter": 500}).x)


def one_by_one(p: Predictions, scaling: Scaling, prior: float | None) -> Tensor:
    """One temperature per ensemble from a dense grid and Brent's method, [ensembles]."""
    size = 1 if scaling == "pooled" else p.logits.shape[1]
    found = []
    for e in range(len(p.labels)):

        def f(u: float, e: int = e) -> float:
            nll = objective(p, e, torch.full((size,), u, dtype=torch.float64), scaling, None)
            return float(nll) + (0.0 if prior is None else u**2 / (2 * prior**2))

        grid = np.linspace(-6.9, 6.9, 277)
        best = grid[np.argmin([f(u) for u in grid])]
        found.append(math.exp(brent(f, best - 0.05, best + 0.05)))
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("scale", [0.05, 1.0, 150.0])
def test_individual_against_scipy(scale: float, prior: float | None) -> None:
    p = made(0, scale=scale, order=2)
    fitted = fit(p, "individual", prior)
    for e in range(2):
        for m in range(3):
            logits, y = p.logits[e, m, p.held[e, m]], p.labels[e, p.held[e, m]]

            def f(u: float, logits: Tensor = logits, y: Tensor = y) -> float:
                nll = torch.nn.functional.cross_entropy(logits / math.exp(u), y, reduction="sum")
                return float(nll) + (0.0 if prior is None else u**2 / (2 * prior**2))

            expected = math.exp(brent(f, -6.9, 6.9))
            assert fitted.values[e, m].item() == pytest.approx(expected, rel=1e-6)
    assert not fitted.at_bound.any()


class Precomputed(ClassifierMixin, BaseEstimator):
    """A classifier whose inputs are its logits."""

    def __init__(self, classes: int = 4) -> None:
        self.classes = classes
        self.classes_ = np.arange(classes)

    def fit(self, inputs: np.ndarray, labels: np.ndarray) -> "Precomputed":
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(inputs.argmax(1))

    def decision_function(self, inputs: np.ndarray) -> np.ndarray:
        return inputs


@pytest.mark.parametrize("true", [149.0, 0.0745, 1.0])
def test_individual_against_scikit_learn_at_extreme_temperatures(true: float) -> None:
    p = made(1, (1, 1, 400, 4), uneven=0.0)
    p = replace(p, logits=p.logits * (true / fit(p, "individual").values[..., None, None]))
    fitted = fit(p, "individual")
    assert fitted.values.item() == pytest.approx(true, rel=1e-9)
    theirs = CalibratedClassifierCV(FrozenEstimator(Precomputed()), method="temperature", ensemble=False)
    theirs.fit(p.logits[0, 0].numpy(), p.labels[0].numpy())
    beta = theirs.calibrated_classifiers_[0].calibrators[0].beta_
    assert fitted.values.item() == pytest.approx(1 / float(beta), rel=1e-6)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("scaling", ["joint", "pooled"])
def test_joint_and_pooled_against_a_dense_grid_and_brent(scaling: Scaling, order: int, prior: float | None) -> None:
    p = made(2, order=order, uneven=1.5, shape=(3, 3, 150, 4))
    fitted = fit(p, scaling, prior)
    expected = one_by_one(p, scaling, prior)
    torch.testing.assert_close(fitted.values, expected.unsqueeze(1).expand_as(fitted.values), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("members", "points"), [(2, 4), (4, 4), (4, 30)])
def test_joint_finds_the_lowest_of_several_valleys(members: int, points: int) -> None:
    # members of very different scales, each right at points of its own
    g = torch.Generator().manual_seed(0)
    scales = torch.exp(2 * torch.randn(60, members, 1, 1, generator=g, dtype=torch.float64))
    logits = scales * torch.randn(60, members, points, 5, generator=g, dtype=torch.float64)
    right = torch.randint(members, (60, 1, points, 1), generator=g).expand(-1, 1, -1, 5)
    chance = torch.rand(60, points, generator=g) < 0.5
    labels = torch.where(
        chance, logits.gather(1, right).squeeze(1).argmax(-1), torch.randint(5, (60, points), generator=g)
    )
    held = torch.ones(60, members, points, dtype=torch.bool)
    p = Predictions(logits, labels, held, torch.arange(points).repeat(60, 1))
    grid = torch.linspace(-math.log(BOUND), math.log(BOUND), 241, dtype=torch.float64)
    scan = calibrate.sweep(p, grid, "joint")["nll"]  # [grid, ensembles]
    valleys = ((scan[1:-1] < scan[:-2]) & (scan[1:-1] < scan[2:])).sum(0)
    assert (valleys > 1).any()
    fitted = calibrate.figures(p, fit(p, "joint"))["ensemble_nll"]
    assert (fitted <= scan.amin(0) * (1 + 1e-9)).all()


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("order", [2, 3])
def test_joint_per_member_against_l_bfgs_b_from_many_starts(order: int, prior: float | None) -> None:
    p = made(3, (2, 3, 150, 4), order=order)
    fitted = fit(p, "joint_per_member", prior)
    rng = np.random.default_rng(0)
    for e in range(2):

        def f(u: np.ndarray, e: int = e) -> tuple[float, np.ndarray]:
            log_t = torch.tensor(u, requires_grad=True)
            value = objective(p, e, log_t, "joint_per_member", prior)
            value.backward()
            assert log_t.grad is not None
            return value.item(), log_t.grad.numpy()

        runs = [
            minimize(
                f,
                rng.normal(1, 1.5, size=3),
                jac=True,
                method="L-BFGS-B",
                bounds=[(-5, 5)] * 3,
                options={"ftol": 1e-14, "gtol": 1e-6},
            )
            for _ in range(8)
        ]
        best = min(runs, key=lambda run: float(run.fun))
        ours = objective(p, e, fitted.values[e].log(), "joint_per_member", prior).item()
        assert ours <= best.fun + 1e-9
        np.testing.assert_allclose(fitted.values[e].numpy(), np.exp(best.x), rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 40), st.floats(0.01, 100.0), st.floats(0.0, 3.0), st.sampled_from([None, 1.0])
)
def test_fits_are_never_worse_than_what_they_generalise(
    seed: int, points: int, scale: float, uneven: float, prior: float | None
) -> None:
    p = made(seed, (2, 3, points, 3), scale, uneven)
    values = {scaling: fit(p, scaling, prior) for scaling in SCALINGS}
    for scaling, fitted in values.items():
        assert torch.isfinite(fitted.values).all() and (fitted.values > 0).all()
        assert all(torch.isfinite(x).all() for x in calibrate.figures(p, fitted).values()), scaling
    for e in range(2):
        one = torch.zeros(3, dtype=torch.float64)
        log_t = {scaling: fitted.values[e].log() for scaling, fitted in values.items()}

        def shared(u: Tensor, e: int = e) -> float:  # one temperature, so the prior counts once
            nll = objective(p, e, u, "joint", None)
            return nll.item() + (0.0 if prior is None else u[0].item() ** 2 / 2)

        slack = 1e-9 * (1 + shared(one))
        assert shared(log_t["joint"]) <= shared(one) + slack
        pooled = [objective(p, e, u, "pooled", prior).item() for u in (log_t["pooled"], one[:1])]
        assert not math.isfinite(pooled[0]) or pooled[0] <= pooled[1] + slack
        own, joint = (objective(p, e, log_t[s], "joint", prior).item() for s in ("joint_per_member", "joint"))
        assert own <= joint + slack


def test_members_that_are_alike_leave_their_common_optimum_when_parting_pays() -> None:
    # right by little or wrong by much: no one T suits both, a sharp and a uniform member together do
    g = torch.Generator().manual_seed(0)
    margins = torch.where(torch.arange(50) < 40, 0.1, -10.0) * (1 + 0.2 * torch.rand(50, generator=g))
    logits = torch.zeros(1, 2, 50, 3, dtype=torch.float64)
    logits[..., 0] = margins
    held = torch.ones(1, 2, 50, dtype=torch.bool)
    p = Predictions(logits, torch.zeros(1, 50, dtype=torch.long), held, torch.arange(50).unsqueeze(0))
    joint, own = (fit(p, s).values[0].log() for s in ("joint", "joint_per_member"))
    ours, shared = (objective(p, 0, u, "joint", None).item() for u in (own, joint))
    grid = torch.cartesian_prod(*[torch.linspace(-6.9, 6.9, 41, dtype=torch.float64)] * 2)
    assert ours < shared - 1
    assert ours <= min(objective(p, 0, u, "joint", None).item() for u in grid) + 1e-9


@pytest.mark.parametrize("scaling", SCALINGS)
def test_what_scaling_cannot_change(scaling: Scaling) -> None:
    p = made(5)
    before, fitted = metrics.evaluate(p), fit(p, scaling)
    after = calibrate.figures(p, fitted)
    assert set(after) == set(before)
    torch.testing.assert_close(after["avg_member_error"], before["avg_member_error"])
    if scaling in ("none", "pooled"):
        for name in before.keys() - (
            {"ensemble_nll", "ensemble_ece", "ensemble_brier", "ensemble_entropy"} if scaling == "pooled" else set()
        ):
            torch.testing.assert_close(after[name], before[name])
    else:
        assert (after["ambiguity"] >= 0).all() and (after["diversity"] >= 0).all()
    members, ensemble = calibrate.apply(p, fitted)
    torch.testing.assert_close(after["ensemble_nll"], metrics.nll(ensemble, p.labels))
    torch.testing.assert_close(members.exp().sum(-1), torch.ones_like(members[..., 0]))
    torch.testing.assert_close(ensemble.exp().sum(-1), torch.ones_like(ensemble[..., 0]))
    if scaling != "pooled":
        torch.testing.assert_close(members[1, 2], (p.logits[1, 2] / fitted.values[1, 2]).log_softmax(-1))


@pytest.mark.parametrize("scaling", SCALINGS[1:])
@pytest.mark.parametrize(("sign", "bound"), [(1, 1 / BOUND), (-1, BOUND)])
def test_a_holdout_without_a_finite_optimum_ends_at_the_bound_and_says_so(
    scaling: Scaling, sign: int, bound: float
) -> None:
    p = made(6, (2, 3, 5, 4))  # all points right, or all wrong with the label last
    top = torch.nn.functional.one_hot(p.labels, 4).unsqueeze(1) * 40.0
    separable = replace(p, logits=sign * (top + p.logits.clamp(-5, 5)))
    fitted = fit(separable, scaling)
    assert fitted.at_bound.all()
    torch.testing.assert_close(fitted.values, torch.full_like(fitted.values, bound))
    wrong = replace(p, logits=-separable.logits)
    for data in (separable, wrong):
        assert all(torch.isfinite(values).all() for values in calibrate.figures(data, fitted).values())
    usual = calibrate.fit(separable, scaling)
    assert usual.at_bound.all()
    torch.testing.assert_close(usual.values, torch.full_like(usual.values, 4.0**-sign))
    cured = fit(separable, scaling, prior=1.0)
    assert not cured.at_bound.any() and (cured.values.log().abs() < 4).all()


@pytest.mark.parametrize("scaling", ["individual", "joint", "pooled"])
def test_the_prior_cures_tiny_holdouts_and_fades_with_points(scaling: Scaling) -> None:
    tests = made(7, (60, 3, 1000, 4), scale=1.5)
    test_nll = {}
    for points in (5, 50):
        rows = slice(0, points)
        few = Predictions(tests.logits[:, :, rows], tests.labels[:, rows], tests.held[:, :, rows], tests.index[:, rows])
        for prior in PRIORS:
            figures = calibrate.figures(tests, fit(few, scaling, prior))
            level = "avg_member_nll" if scaling == "individual" else "ensemble_nll"
            test_nll[points, prior] = figures[level].mean().item()
    assert test_nll[5, 1.0] < 1.2  # without scaling, or with many points: 0.9 to 1
    assert test_nll[5, None] > 2 * test_nll[5, 1.0]
    assert test_nll[50, 1.0] <= test_nll[50, None] + 1e-3
    plain, weighed = (fit(tests, scaling, prior).values.log() for prior in PRIORS)
    assert (plain - weighed).abs().max() < 0.01


@pytest.mark.parametrize("scaling", SCALINGS)
def test_only_the_members_that_held_a_point_out_count(scaling: Scaling) -> None:
    p = made(8, (2, 4, 80, 3), order=2)
    garbage = torch.where(p.held.unsqueeze(-1), p.logits, torch.full_like(p.logits, torch.nan))
    for prior in PRIORS:
        fitted, other = (fit(x, scaling, prior) for x in (p, replace(p, logits=garbage)))
        assert torch.equal(fitted.values, other.values)
    torch.testing.assert_close(
        calibrate.figures(p, fitted), calibrate.figures(replace(p, logits=garbage.nan_to_num(7.0)), fitted)
    )


def test_order_1_has_individual_temperatures_only() -> None:
    p = made(9, (2, 4, 80, 3), order=1)
    fitted = fit(p, "individual")
    assert fitted.values.shape == (2, 4) and "avg_member_nll" in calibrate.figures(p, fitted)
    for scaling in JOINT:
        with pytest.raises(UserError, match="no joint metric"):
            fit(p, scaling)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_order_of_ensembles_and_members_does_not_matter(scaling: Scaling, prior: float | None) -> None:
    p = made(10, (3, 4, 300, 3))
    fitted = fit(p, scaling, prior).values
    ensembles, members = torch.tensor([2, 0, 1]), torch.tensor([3, 1, 0, 2])
    mixed = Predictions(p.logits[ensembles][:, members], p.labels[ensembles], p.held, p.index)
    expected = fitted[ensembles] if scaling == "pooled" else fitted[ensembles][:, members]
    torch.testing.assert_close(fit(mixed, scaling, prior).values, expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_all_at_once_equals_one_by_one_and_chunk_by_chunk(scaling: Scaling, monkeypatch: pytest.MonkeyPatch) -> None:
    p = made(11, (4, 3, 60, 3), uneven=1.0)
    together = fit(p, scaling)
    figures = calibrate.figures(p, together)
    for e in range(4):
        rows = slice(e, e + 1)
        alone = fit(Predictions(p.logits[rows], p.labels[rows], p.held[rows], p.index[rows]), scaling)
        torch.testing.assert_close(alone.values, together.values[rows], rtol=1e-6, atol=0)
    monkeypatch.setattr(calibrate, "CHUNK", 3 * p.logits[0].numel())
    torch.testing.assert_close(fit(p, scaling).values, together.values, rtol=1e-6, atol=0)
    torch.testing.assert_close(calibrate.figures(p, together), figures)


@pytest.mark.parametrize("scaling", SCALINGS[1:])
def test_a_diverged_ensemble_gets_no_temperature_and_harms_no_other(scaling: Scaling) -> None:
    p = made(12)
    logits = p.logits.clone()
    logits[1, :, 7] = torch.nan
    sound, fitted = fit(p, scaling), fit(replace(p, logits=logits), scaling)
    assert fitted.values[1].isnan().all() and not fitted.at_bound.any()
    torch.testing.assert_close(fitted.values[0], sound.values[0], rtol=1e-7, atol=0)


@pytest.mark.parametrize("how", ["joint", "pooled"])
def test_a_sweep_is_lowest_at_the_fitted_temperature(how: Literal["joint", "pooled"]) -> None:
    p = made(13, (2, 3, 200, 4), uneven=0.0)
    fitted = fit(p, how)
    log_t = torch.tensor([-1.0, 0.0, *fitted.values[:, 0].log().tolist(), 3.0])
    curves = calibrate.sweep(p, log_t, how)
    assert set(curves) == set(metrics.METRICS) and all(curve.shape == (5, 2) for curve in curves.values())
    for metric in metrics.METRICS:
        torch.testing.assert_close(curves[metric][1], metrics.evaluate(p)[f"ensemble_{metric}"])
    assert curves["nll"].argmin(0).tolist() == [2, 3]


def test_bad_input_is_named() -> None:
    p = made(14)
    with pytest.raises(UserError, match="one of none, individual"):
        fit(p, "jointly")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="must be above 0"):
        fit(p, "joint", prior=0.0)
    wrong = torch.ones(2, 1)
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        calibrate.apply(p, Temperatures("joint", wrong, wrong.bool()))
    assert get_args(Scaling) == SCALINGS
