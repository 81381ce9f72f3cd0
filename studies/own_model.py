"""Your own network on your own data: which setting is best for an ensemble of it, and the ensemble itself.

A notebook as a script: run it whole (`python studies/own_model.py`), or cell by cell in an editor that knows `# %%`.
The data set ships inside scikit-learn: 569 tumours, 30 measurements each, malignant or benign.
"""

# %% The data and the network
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import ensgap

x, y = load_breast_cancer(return_X_y=True)


class Net(nn.Module):
    """An ordinary network; its arguments can be hyperparameters."""

    def __init__(self, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm1d(30, affine=False),  # measurements come on very different scales
            nn.Linear(30, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.layers(x)
        return logits


task = ensgap.Task.from_arrays("breast_cancer", x, y, network=Net, test=0.3)

# %% One search, both optima
result = ensgap.tune(
    task,
    space={
        "lr": ensgap.log(1e-3, 1e-1),
        "weight_decay": ensgap.log(1e-5, 1e-1),
        "dropout": ensgap.uniform(0.0, 0.5),
        "width": ensgap.choice(8, 32, 128),
        "batch_size": 64,
    },
    members=4,
    replicates=5,
    test_replicates=10,
    epochs=30,
    num_samples=30,
    val_fraction=0.3,
    out=Path("reports/own_model"),
)
print(result)

# %% What the wrong setting costs, and where the whole report is
print(result.gap)
print(result.report())

# %% The ensemble to take home: trained on all data, calibrated
ensemble = result.fit(which="ens", calibrate="joint")
print(ensemble)

# %% What it says about points it is unsure of: total = aleatoric + epistemic
uncertainty = ensemble.uncertainty(x)
for i in uncertainty.total.argsort()[-3:][::-1]:
    probability = ensemble.predict_proba(x[i : i + 1])[0, 1]
    print(
        f"tumour {i}: benign with {probability:.0%}, uncertainty {uncertainty.total[i]:.2f} nats, "
        f"of which epistemic {uncertainty.epistemic[i]:.2f}"
    )

# %% One file, without pickle; only the network's code is needed to load it
path = result.folder.report / "model.safetensors"
ensemble.save(path)
assert (ensgap.load(path, network=Net).predict_proba(x) == ensemble.predict_proba(x)).all()
print(f"saved as {path}")
