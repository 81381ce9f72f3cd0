"""Tasks of one's own: what is refused, in which words, and what becomes of labels, splits and networks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import ensgap
from ensgap.errors import UserError
from ensgap.points import TensorPoints
from ensgap.tasks import get_task
from ensgap.tasks.own import OwnTask, check_names

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5))
Y = np.arange(60) % 3


def network(width: int = 8, dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 3))


def task(x: Any = X, y: Any = Y, **options: Any) -> OwnTask:
    made = ensgap.Task.from_arrays("mine", x, y, **({"network": network} | options))
    assert isinstance(made, OwnTask)
    return made


def points(made: OwnTask) -> tuple[TensorPoints, TensorPoints]:
    data = made.load(None)
    assert isinstance(data.pool, TensorPoints) and isinstance(data.test, TensorPoints)
    return data.pool, data.test


def test_a_share_is_kept_for_the_test_stratified() -> None:
    pool, test = points(task())
    assert (len(pool), len(test)) == (48, 12)
    assert pool.inputs.dtype == torch.float32
    assert test.labels.bincount().tolist() == [4, 4, 4]


def test_labels_may_be_words_and_classes_are_found() -> None:
    made = task(y=np.array(["c", "a", "b"])[Y])
    assert made.class_names == ("a", "b", "c")
    assert made.classes == 3
    assert task(y=torch.tensor(Y)).class_names == (0, 1, 2)
    assert task(y=Y, classes=4).classes == 4


def test_a_given_test_set_is_used_as_it_is() -> None:
    pool, test = points(task(test=(X[:7], Y[:7])))
    assert (len(pool), len(test)) == (60, 7)


def test_a_network_of_a_setting_gets_its_arguments() -> None:
    made = task().at({"width": 4, "lr": 0.1})
    first: Any = made.member(torch.Generator().manual_seed(0))
    assert first[0].out_features == 4
    again: Any = made.member(torch.Generator().manual_seed(0))
    assert torch.equal(first[0].weight, again[0].weight)


def test_workers_get_no_data() -> None:
    with pytest.raises(RuntimeError, match="no data"):
        task().without_data().load(None)


class Pairs(Dataset[tuple[Any, int]]):
    """Items from a function."""

    def __init__(self, item: Callable[[int], Any], length: int = 6) -> None:
        self.item, self.length = item, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        return self.item(i)


def test_datasets_are_read_into_memory() -> None:
    data = TensorDataset(torch.tensor(X), torch.tensor(Y))
    pool, test = points(ensgap.Task.from_datasets("mine", data, Pairs(lambda i: (X[i], Y[i])), network=network))
    assert torch.equal(pool.inputs, torch.tensor(X).float())
    assert test.labels.tolist() == [0, 1, 2, 0, 1, 2]


def broken(value: float) -> np.ndarray:
    x = X.copy()
    x[7, 2] = value
    return x


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x": X[:, 0]}, "at least one column, however its shape is [60]"),
        ({"x": X[:50]}, "x has 50 rows and y has 60 labels"),
        ({"x": broken(np.nan)}, "NaN or infinite values in 1 of 60 rows, the first in row 7"),
        ({"x": broken(np.inf)}, "NaN or infinite"),
        ({"x": X.astype(str)}, "x must hold numbers, however its type is <U"),
        ({"y": np.eye(3)[Y]}, "give y.argmax(1)"),
        ({"y": Y[:, None]}, "give y.ravel()"),
        ({"y": np.where(Y == 1, np.nan, Y)}, "no usable label in 20 of 60 rows, the first in row 1"),
        ({"y": np.zeros(60, int)}, "All points have the label 0"),
        ({"y": Y.astype(float)}, "give y.astype(int) for classes"),
        ({"classes": 2}, "label 2, which is outside the 2 classes 0, 1"),
        ({"classes": ["a", "b", "c"]}, "label 0, which is outside"),
        ({"test": 1.5}, "test is a share between 0 and 1"),
        ({"test": "x"}, "or a pair (x_test, y_test)"),
        ({"test": (X[:, :3], Y)}, "x_test must look like x"),
        ({"test": (X[:5], Y[:4])}, "x_test has 5 rows and y_test has 4"),
        ({"test": (X[:5], Y[:5] + 1)}, "y_test has the label 3, which is not among the classes"),
        ({"y": np.r_[Y[:-1], 9]}, "cannot be split"),
        ({"network": network()}, "a function that makes a new network at every call"),
        ({"loss": "hinge"}, "loss is 'classification' or 'regression'"),
    ],
)
def test_bad_data_is_refused_in_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        task(**options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (lambda i: X[i], "must be pairs (input, label), however item 0 is a ndarray"),
        (lambda i: ("word", i), "must be tensors, however that of item 0 is a str"),
        (lambda i: (X[i, : 2 + i], 0), "must have one shape, however item 1 has [3] and item 0 [2]"),
    ],
)
def test_items_that_cannot_be_stacked_are_refused(item: Callable[[int], Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        ensgap.Task.from_datasets("mine", Pairs(item), Pairs(item), network=network)
    assert words in str(error.value)


def test_data_that_would_fill_the_memory_is_refused() -> None:
    huge = Pairs(lambda i: (X[i % 60], Y[i % 60]), length=10**12)
    with pytest.raises(UserError, match=r"takes 37252\.9 GiB in memory, more than half"):
        ensgap.Task.from_datasets("mine", huge, huge, network=network)


def test_numbers_make_a_regression() -> None:
    made = task(y=X[:, 0] ** 2, network=lambda: nn.Linear(5, 2))
    assert (made.loss, made.classes) == ("regression", 2)
    assert points(made)[0].labels.dtype == torch.float32


def test_a_name_that_is_no_name() -> None:
    with pytest.raises(UserError, match="folders are named by it"):
        ensgap.Task.from_arrays("my/task", X, Y, network=network)


def test_hyperparameters_that_go_nowhere_or_come_from_nowhere() -> None:
    with pytest.raises(UserError, match=r"widht is neither one of training .* \(width, dropout\)"):
        task().at({"widht": 4})
    with pytest.raises(UserError, match="needs depth, which is not in the space"):
        check_names(lambda depth: network(depth), {})
    check_names(lambda **anything: network(**anything), {"depth": 3})
    with pytest.raises(UserError, match="the network of digits takes none"):
        get_task("digits").at({"width": 3})
