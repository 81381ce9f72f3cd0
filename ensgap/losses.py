"""What members learn, as one small notion: whole-number labels are classes, floating-point labels are the targets of a
regression with Gaussian members. Everything else (which figures there are, by which a setting may be selected) follows.
"""

from typing import Literal

from torch import Tensor

from ensgap.errors import UserError

Loss = Literal["classification", "regression"]
Objective = Literal["nll", "brier", "error", "rmse"]
METRICS: dict[Loss, tuple[str, ...]] = {
    "classification": ("nll", "error", "ece", "brier"),
    "regression": ("nll", "rmse", "coverage"),
}
"""The figures of a prediction, lower is better; the first is the loss that members are trained with."""
OBJECTIVES: dict[Loss, tuple[Objective, ...]] = {
    "classification": ("nll", "brier", "error"),
    "regression": ("nll", "rmse"),
}
"""The metrics by which h*_ind and h*_ens may be selected."""


def loss_of(labels: Tensor) -> Loss:
    """What labels of that kind are learned with."""
    return "regression" if labels.is_floating_point() else "classification"


def objective_names(objective: str) -> tuple[str, str]:
    """The two figures that a search minimises at once: the average member's and the ensemble's."""
    return f"avg_member_{objective}", f"ensemble_{objective}"


def hopeless(loss: Loss) -> dict[str, float]:
    """What a diverged trial reports for every objective: finite, because a NaN would leave Optuna's trial running for
    ever; targets have units, so that only a huge number is surely worse than what a trained network gives.
    """
    value = {"classification": 100.0, "regression": 1e12}[loss]
    return {name: value for objective in OBJECTIVES[loss] for name in objective_names(objective)}


def check_objective(objective: str, loss: Loss) -> None:
    """Refuse a metric that this kind of prediction does not have."""
    if objective not in OBJECTIVES[loss]:
        known = ", ".join(OBJECTIVES[loss])
        raise UserError(f"--objective {objective} is not for a {loss}; choose one of: {known}.")
