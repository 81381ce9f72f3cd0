"""A task of one's own: any data that fits into memory, and any network that a function makes."""

import hashlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Generator, Tensor, nn

from ensgap.errors import UserError
from ensgap.hyperparameters import PER_MEMBER, PER_STACK, Setting, network_arguments
from ensgap.points import Points, TensorPoints
from ensgap.stack import Kernels, OptimizerConfig, Precision, Stack, Vectorized, make_member, vectorize_members
from ensgap.tasks.checks import classes_of, inputs_of, labels_of, looks_like_classes, places_of
from ensgap.tasks.datasets import materialized
from ensgap.tasks.task import Defaults, DesignDefaults, Task, TaskData, log_spaced
from ensgap.train import TrainConfig

Factory = Callable[..., nn.Module]
EXAMPLE = 4
"""Points on which a network is tried before it is trained."""


@dataclass(frozen=True)
class OwnTask(Task):
    """A task whose network is whatever a function makes; arguments of the function can be hyperparameters."""

    network: Factory = field(kw_only=True)
    arguments: Setting = field(default_factory=dict, kw_only=True)
    class_names: tuple[Any, ...] = field(default=(), kw_only=True)

    def at(self, setting: Setting) -> Self:
        """The task with the network of a setting."""
        check_names(self.network, setting)
        arguments = network_arguments(setting)
        return replace(self, arguments=arguments, member=partial(_member, self.network, arguments))

    def without_data(self) -> Self:
        """What workers get: they have the pool from elsewhere, and the test data must not reach a search."""
        return replace(self, load=_elsewhere)

    def stack(
        self,
        generators: Sequence[Generator],
        optimizer: OptimizerConfig,
        device: torch.device,
        kernels: Kernels = "auto",
        precision: Precision = "float32",
        points: Points | None = None,
    ) -> Stack:
        """A stack with a member for each generator, by whichever way serves the network."""
        assert isinstance(points, TensorPoints)
        return self.vectorized(generators, optimizer, device, kernels, precision, points).stack

    def vectorized(
        self,
        generators: Sequence[Generator],
        optimizer: OptimizerConfig,
        device: torch.device,
        kernels: Kernels,
        precision: Precision,
        points: TensorPoints,
    ) -> Vectorized:
        """The same, with the way that was taken and why."""
        members = [self.member(generator) for generator in generators]
        example = points.inputs[:EXAMPLE]
        return vectorize_members(
            members, generators, example, optimizer, device, precision, kernels, outputs=self.classes
        )


def _member(network: Factory, arguments: Setting, generator: Generator | None) -> nn.Module:
    return make_member(partial(network, **arguments), generator or Generator())


def _elsewhere(_: Path | None) -> TaskData:
    raise RuntimeError("a worker has no data of its own")


def _not_stacked(_: int) -> nn.Module:
    raise RuntimeError("the stack of a network of one's own is made from its members")


def check_names(network: Factory, setting: Setting) -> None:
    """Refuse hyperparameters that go nowhere, and arguments that come from nowhere."""
    parameters = inspect.signature(network).parameters
    keywords = {n: p for n, p in parameters.items() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    takes_any = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
    for name in network_arguments(setting):
        if name not in keywords and not takes_any:
            raise UserError(
                f"The hyperparameter {name} is neither one of training ({', '.join((*PER_MEMBER, *PER_STACK))}) nor an "
                f"argument of the network's function ({', '.join(keywords) or 'it has none'})."
            )
    missing = [n for n, p in keywords.items() if p.default is p.empty and n not in setting]
    if missing:
        raise UserError(
            f"The network's function needs {missing[0]}, which is not in the space; give it a default, or put it there."
        )


def from_arrays(
    name: str,
    x: Any,
    y: Any,
    network: Factory,
    test: Any = 0.2,
    classes: Any = None,
    loss: Any = None,
    **defaults: Any,
) -> OwnTask:
    """See Task.from_arrays."""
    inputs = inputs_of(x)
    labels = labels_of(y, len(inputs))
    is_share = isinstance(test, float | int)
    if not is_share and not (isinstance(test, Sequence) and len(test) == 2):
        raise UserError("test is the share of points to keep for the test, such as 0.2, or a pair (x_test, y_test).")
    regression = _is_regression(labels, loss)
    known = () if regression else classes_of(labels, classes)
    pool = TensorPoints(inputs, _targets(labels, known, "y"))
    if is_share:
        pool, tested = _split(pool, float(test), stratify=not regression)
    else:
        x_test = inputs_of(test[0], "x_test")
        if x_test.shape[1:] != inputs.shape[1:] or x_test.dtype != inputs.dtype:
            raise UserError(
                f"x_test must look like x, however its points are {x_test.dtype} {list(x_test.shape[1:])} and those of "
                f"x {inputs.dtype} {list(inputs.shape[1:])}."
            )
        tested = TensorPoints(x_test, _targets(labels_of(test[1], len(x_test), "y_test", "x_test"), known, "y_test"))
    return _task(name, pool, tested, network, known, **defaults)


def from_datasets(
    name: str, train: Any, test: Any, network: Factory, classes: Any = None, loss: Any = None, **defaults: Any
) -> OwnTask:
    """See Task.from_datasets."""
    x, y = materialized(train, "training")
    return from_arrays(name, x, y, network, materialized(test, "test"), classes, loss, **defaults)


def _is_regression(labels: np.ndarray, loss: Any) -> bool:
    if loss not in (None, "classification", "regression"):
        raise UserError(f"loss is 'classification' or 'regression', however: {loss!r}.")
    if loss is None and labels.dtype.kind == "f" and looks_like_classes(labels):
        raise UserError(
            f"y holds a few whole numbers as {labels.dtype}: give y.astype(int) for classes, or say loss='regression'."
        )
    return labels.dtype.kind == "f" if loss is None else bool(loss == "regression")


def _targets(labels: np.ndarray, classes: tuple[Any, ...], what: str) -> Tensor:
    return places_of(labels, classes, what) if classes else torch.tensor(labels.astype(np.float32))


def _split(points: TensorPoints, share: float, stratify: bool) -> tuple[TensorPoints, TensorPoints]:
    """A fixed share for the test, stratified by class."""
    from sklearn.model_selection import train_test_split

    if not 0 < share < 1:
        raise UserError(f"test is a share between 0 and 1, however: {share:g}.")
    labels = points.labels.numpy()
    try:
        kept, tested = train_test_split(
            np.arange(len(labels)), test_size=share, stratify=labels if stratify else None, random_state=0
        )
    except ValueError as error:
        raise UserError(f"The data cannot be split into {1 - share:g} and {share:g} ({error}).") from None
    return points.subset(torch.from_numpy(kept)), points.subset(torch.from_numpy(tested))


def _task(
    name: str,
    pool: TensorPoints,
    test: TensorPoints,
    network: Factory,
    classes: tuple[Any, ...],
    train: TrainConfig | None = None,
    members: int = 8,
    replicates: int = 5,
    test_replicates: int = 10,
    val_fraction: float = 0.2,
    title: str | None = None,
) -> OwnTask:
    if not re.fullmatch(r"\w[\w.-]*", str(name)):
        raise UserError(
            f"A task's name is letters, digits, dots and dashes, for folders are named by it, however: {name!r}."
        )
    if isinstance(network, nn.Module) or not callable(network):
        raise UserError(
            "network must be a function that makes a new network at every call, such as lambda: MyNet(), however: "
            f"{type(network).__name__}."
        )
    data = TaskData(pool, test, fingerprint=_fingerprint(pool, test))
    return OwnTask(
        name=str(name),
        title=title or str(name),
        loss="classification" if classes else "regression",
        classes=len(classes) or 2,
        load=lambda _: data,
        member=partial(_member, network, {}),
        stacked=_not_stacked,
        loop_on_cpu=False,
        defaults=Defaults(
            train=train or TrainConfig(optimizer="adam", lr=1e-3, epochs=40),
            members=members,
            replicates=replicates,
            test_replicates=test_replicates,
            val_fraction=val_fraction,
            grid=(0.0, *log_spaced(1e-6, 1e-1, 11)),
        ),
        design=DesignDefaults(weight_decay=1e-4, val_fractions=(0.05, 0.1, 0.2)),
        network=network,
        class_names=classes,
    )


def _fingerprint(*points: TensorPoints) -> str:
    """Of the data, so that a study is not continued on other data."""
    digest = hashlib.sha256()
    for part in points:
        for tensor in (part.inputs, part.labels):
            digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:16]
