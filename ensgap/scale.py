"""A joint scale: what a temperature is to classes, for the standard deviations of the Gaussian members of a regression.

One number multiplies the standard deviations of all members of an ensemble, so that the NLL of their mixture at
held-out points is least; means stay as they are.
"""

import math
from dataclasses import replace

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from ensgap import gaussian
from ensgap.calibrate import BOUND
from ensgap.errors import UserError
from ensgap.losses import loss_of
from ensgap.predictions import Predictions


def fit_scale(predictions: Predictions, bound: float = BOUND) -> Tensor:  # -> [ensembles]
    """The scale of every ensemble, within 1/bound…bound: under a holdout of order k < M, for each point's k held-out
    members. A disjoint holdout (order 1) has no mixture, and raises a UserError.
    """
    if loss_of(predictions.labels) != "regression":
        raise UserError("A joint scale is for the Gaussian members of a regression; classes take a temperature.")
    members, targets = (values.double() for values in predictions.by_point())
    found = []
    for own, labels in zip(members, targets, strict=True):  # [k, points, 2], [points]

        def nll(log_scale: float, own: Tensor = own, labels: Tensor = labels) -> float:
            return float(gaussian.mixture_figures(_scaled(own, math.exp(2 * log_scale)), labels)["nll"])

        reach = math.log(bound)
        found.append(math.exp(minimize_scalar(nll, bounds=(-reach, reach), method="bounded").x))
    return torch.tensor(found, dtype=torch.float64)


def apply_scale(predictions: Predictions, scale: Tensor) -> Predictions:
    """The predictions with all standard deviations multiplied by their ensemble's scale."""
    factor = scale.square().to(predictions.logits.dtype)[:, None, None]
    mean, variance = predictions.logits.unbind(-1)
    return replace(predictions, logits=torch.stack([mean, factor * variance], -1))


def _scaled(members: Tensor, factor: float) -> Tensor:
    return members * torch.tensor([1.0, factor], dtype=members.dtype)
