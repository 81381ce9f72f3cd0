"""Arrays that people bring, checked: one clear sentence for what cannot be trained on."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensgap.errors import UserError

FEW = 20
"""So few different whole numbers among floating-point labels look like classes."""


def inputs_of(x: Any, what: str = "x") -> Tensor:  # -> [points, …]
    """Inputs as a tensor: float32, or whole numbers as they are (tokens)."""
    if isinstance(x, Tensor):
        found = x.detach().cpu()
    else:
        array = np.asarray(x)
        if array.dtype.kind not in "biuf":
            raise UserError(
                f"{what} must hold numbers, however its type is {array.dtype}; encode words and dates first."
            )
        found = torch.from_numpy(np.ascontiguousarray(array))
    if found.ndim < 2 or 0 in found.shape:
        raise UserError(
            f"{what} needs a row per point and at least one column, however its shape is {list(found.shape)}."
        )
    if found.is_complex():
        raise UserError(f"{what} must hold real numbers, however its type is {found.dtype}.")
    if found.dtype == torch.bool or found.is_floating_point():
        found = found.float()
        bad = (~torch.isfinite(found)).flatten(1).any(1)
        if bool(bad.any()):
            first = int(bad.nonzero()[0, 0])
            raise UserError(
                f"{what} has NaN or infinite values in {int(bad.sum())} of {len(found)} rows, the first in row "
                f"{first}; fill them in or leave these rows out."
            )
    return found.contiguous()


def labels_of(y: Any, points: int, what: str = "y", inputs: str = "x") -> np.ndarray:  # -> [points]
    """Labels as they were given, one per point."""
    labels = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if labels.ndim != 1:
        hint = f"{what}.ravel()" if labels.size == points else f"{what}.argmax(1)" if labels.ndim == 2 else "a vector"
        raise UserError(f"{what} must be one label per point, however its shape is {list(labels.shape)}; give {hint}.")
    if len(labels) != points:
        raise UserError(f"{inputs} has {points} rows and {what} has {len(labels)} labels; they must be equally many.")
    missing = ~np.isfinite(labels) if labels.dtype.kind == "f" else np.array([label is None for label in labels])
    if missing.any():
        raise UserError(
            f"{what} has no usable label in {int(missing.sum())} of {points} rows, the first in row "
            f"{int(missing.argmax())}; leave these rows out."
        )
    return labels


def classes_of(labels: np.ndarray, classes: Any = None) -> tuple[Any, ...]:
    """The classes, in order: those found, or those given as a number or a list."""
    found = np.unique(labels.astype(str) if labels.dtype == object else labels).tolist()
    if classes is None:
        known = tuple(found)
    else:
        known = tuple(range(classes)) if isinstance(classes, int) else tuple(np.asarray(classes).tolist())
        outside = [label for label in found if label not in known]
        if outside:
            raise UserError(
                f"y has the label {outside[0]!r}, which is outside the {len(known)} classes {_some(known)}; give "
                "classes= all of them, or leave it out."
            )
    if len(found) < 2:
        raise UserError(f"All points have the label {found[0]!r}; a classification needs at least two classes.")
    return known


def places_of(labels: np.ndarray, classes: tuple[Any, ...], what: str = "y") -> Tensor:  # -> [points], int64
    """Labels as places in the list of classes."""
    place = {label: i for i, label in enumerate(classes)}
    names = (labels.astype(str) if labels.dtype == object else labels).tolist()
    unknown = [name for name in names if name not in place]
    if unknown:
        raise UserError(f"{what} has the label {unknown[0]!r}, which is not among the classes {_some(classes)}.")
    return torch.tensor([place[name] for name in names])


def looks_like_classes(labels: np.ndarray) -> bool:
    """Whether floating-point labels are a few whole numbers."""
    return bool((labels == np.round(labels)).all()) and len(np.unique(labels)) <= FEW


def _some(classes: tuple[Any, ...]) -> str:
    shown = ", ".join(repr(c) for c in classes[:5])
    return f"{shown}, …" if len(classes) > 5 else shown
