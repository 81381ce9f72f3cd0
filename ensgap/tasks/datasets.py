"""Torch map-style Datasets that people bring, read into memory once."""

import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensgap.errors import UserError


def materialized(dataset: Any, which: str) -> tuple[Tensor, np.ndarray]:
    """All items of a map-style data set, read once."""
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise UserError(
            f"The {which} data must be a map-style Dataset, one with a length and items, however: {dataset!r}."
        )
    _check_memory(dataset, which)
    rows: list[Tensor] = []
    labels = []
    for i in range(len(dataset)):
        item = dataset[i]
        if not (isinstance(item, tuple | list) and len(item) == 2):
            raise UserError(
                f"Items of the {which} data must be pairs (input, label), however item {i} is a {type(item).__name__}."
            )
        x, label = item
        if not isinstance(x, Tensor | np.ndarray):
            raise UserError(
                f"Inputs of the {which} data must be tensors, however that of item {i} is a {type(x).__name__}; give "
                "the data set a transform that makes them, such as torchvision's ToTensor()."
            )
        row = torch.as_tensor(x)
        if rows and row.shape != rows[0].shape:
            raise UserError(
                f"Inputs of the {which} data must have one shape, however item {i} has {list(row.shape)} and item 0 "
                f"{list(rows[0].shape)}; pad or resize them."
            )
        rows.append(row)
        labels.append(label.item() if hasattr(label, "item") else label)
    if not rows:
        raise UserError(f"The {which} data is empty.")
    return torch.stack(rows), np.array(labels)


def _check_memory(dataset: Any, which: str) -> None:
    """Refuse data that would fill this machine's memory, as far as its first item tells."""
    first = dataset[0][0] if len(dataset) and isinstance(dataset[0], tuple | list) else None
    if not isinstance(first, Tensor | np.ndarray) or not hasattr(os, "sysconf"):
        return
    needed, memory = len(dataset) * first.nbytes, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory / 2:
        raise UserError(
            f"The {which} data takes {needed / 2**30:.1f} GiB in memory, more than half of what this machine has "
            f"({memory / 2**30:.1f} GiB); give a torch.utils.data.Subset of it, or smaller inputs."
        )
