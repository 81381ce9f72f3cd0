"""NCI1: 4,110 molecules as graphs, active against cancer cells or not, and a graph convolutional network."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Generator, nn

from ensgap.graphs import GraphPoints, graph_points
from ensgap.networks.gcn import GCN, StackedGCN
from ensgap.tasks.files import damaged, data_root, fetch_once
from ensgap.tasks.task import Defaults, DesignDefaults, Task, TaskData, log_spaced
from ensgap.train import TrainConfig

COUNTS = {"graph_labels": 4110, "graph_indicator": 122747, "node_labels": 122747, "A": 265506}
"""How many lines each file of the complete data set has."""
LABELS, HIDDEN, CLASSES = 37, 64, 2


def _download(folder: Path) -> None:
    from torch_geometric.datasets import TUDataset

    TUDataset(root=str(folder / "tudataset"), name="NCI1")
    (folder / "tudataset" / "NCI1" / "raw").replace(folder / "raw")
    shutil.rmtree(folder / "tudataset")


def _table(folder: Path, name: str) -> np.ndarray:
    path = folder / "raw" / f"NCI1_{name}.txt"
    try:
        values = np.loadtxt(path, dtype=np.int64, delimiter=",", ndmin=2)
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    except ValueError as error:
        raise damaged(path, str(error)) from None
    if len(values) != COUNTS[name]:
        raise damaged(path, f"it has {len(values)} lines instead of {COUNTS[name]}")
    return values


def read(folder: Path) -> GraphPoints:
    """All graphs, from TUDataset's raw files, which count nodes, graphs and node labels from 1."""
    tables = {name: _table(folder, name) for name in COUNTS}
    graph_of_node = tables["graph_indicator"][:, 0] - 1
    edges = tables["A"].T - 1
    for name, values, limit in (
        ("A", edges, len(graph_of_node)),
        ("graph_indicator", graph_of_node, len(tables["graph_labels"])),
        ("node_labels", tables["node_labels"] - 1, LABELS),
    ):
        if values.min() < 0 or values.max() >= limit:
            raise damaged(folder / "raw" / f"NCI1_{name}.txt", f"a number in it is not between 1 and {limit}")
    if (np.diff(graph_of_node) < 0).any() or (graph_of_node[edges[0]] != graph_of_node[edges[1]]).any():
        raise damaged(folder / "raw" / "NCI1_A.txt", "an edge joins two graphs")
    return graph_points(graph_of_node, tables["node_labels"][:, 0] - 1, edges, tables["graph_labels"][:, 0])


def load(data_dir: Path | None) -> TaskData:
    """A fixed fifth of the graphs, stratified, is the test data: 3,288 and 822."""
    from sklearn.model_selection import train_test_split

    folder = data_root(data_dir) / "NCI1"
    fetch_once(folder, lambda f: (f / "raw").exists(), _download, "NCI1")
    graphs = read(folder)
    graphs = replace(graphs, weights=graphs.weights.float())
    every = np.arange(len(graphs))
    pool, test = train_test_split(every, test_size=0.2, stratify=graphs.labels.numpy(), random_state=0)
    return TaskData(graphs.subset(torch.from_numpy(pool)), graphs.subset(torch.from_numpy(test)))


def member(generator: Generator | None = None, width: int = HIDDEN) -> nn.Module:
    """24,204 parameters."""
    return GCN(LABELS, width, CLASSES, generator)


def stacked(members: int, width: int = HIDDEN) -> nn.Module:
    """The same, batched."""
    return StackedGCN(members, LABELS, width, CLASSES)


def with_width(width: int) -> Task:
    """The paper prints 24,204 parameters, which 64 features have; its figures fit 128."""
    return replace(
        NCI1,
        name=f"nci1-{width}",
        title=f"NCI1 / GCN with {width} hidden features",
        member=partial(member, width=width),
        stacked=partial(stacked, width=width),
    )


PAPER = Defaults(
    train=TrainConfig(optimizer="sgd", lr=0.1, schedule="cosine", epochs=200),
    members=4,
    replicates=20,
    test_replicates=20,
    val_fraction=0.1,
    grid=(0.0, *log_spaced(1e-4, 1e-2, 17)),
)
NCI1 = Task(
    name="nci1",
    title="NCI1 / GCN",
    classes=CLASSES,
    load=load,
    member=member,
    stacked=stacked,
    loop_on_cpu=True,
    defaults=PAPER,
    design=DesignDefaults(
        weight_decay=3.16e-3, val_fractions=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5), stopping_replicates=50
    ),
    presets={"paper": PAPER},
    smoke_fraction=0.1,
    with_width=with_width,
)
