"""The ensemble to take home: calibrated probabilities, uncertainty, and one file without pickle."""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ensgap import __version__, calibrate
from ensgap.errors import UserError
from ensgap.gaussian import TargetScale
from ensgap.hyperparameters import Setting, in_words, network_arguments
from ensgap.metrics import ensemble_log_probs
from ensgap.predictions import Predictions
from ensgap.tasks.checks import inputs_of

BATCH = 1024


@dataclass(frozen=True)
class Uncertainty:
    """One value per point, total = aleatoric + epistemic: entropies in nats, or, of a regression, variances."""

    total: Any
    """Entropy of the averaged probabilities; variance of the mixture."""
    aleatoric: Any
    """The members' average entropy or variance: what they agree is uncertain."""
    epistemic: Any
    """The difference, what they disagree about: the mutual information of prediction and member; the variance of the
    members' means.
    """


@dataclass(frozen=True)
class Ensemble:
    """Trained members whose probabilities are averaged, or, of a regression, whose Gaussians make a mixture."""

    members: Sequence[nn.Module]
    classes: tuple[Any, ...]  # the labels, in the order of the probabilities; none of a regression
    setting: Setting
    scaling: calibrate.Scaling
    temperature: float  # of a regression: what multiplies the members' standard deviations
    input_shape: tuple[int, ...]
    input_dtype: torch.dtype
    about: dict[str, Any]  # task, how it was chosen, the gap, versions: kept in the file
    target: tuple[float, float] | None = None  # of a regression: mean and standard deviation of the training targets

    def __repr__(self) -> str:
        kind, scale = (f"{len(self.classes)} classes", "temperature") if self.classes else ("a regression", "scale")
        return (
            f"Ensemble of {len(self.members)} members, {kind}, {in_words(self.setting)}, {scale} "
            f"{self.temperature:.3g} ({self.scaling})"
        )

    def predict_proba(self, x: Any) -> Any:
        """The averaged probabilities [points, classes]: an array for an array, a tensor for a tensor."""
        if self.target is not None:
            raise UserError("A regression has no classes; predict gives its mean, and uncertainty its variance.")
        return _like(x, self._log_probs(x)[1].exp())

    def predict(self, x: Any) -> np.ndarray:
        """The most likely label of every point; of a regression the mean."""
        if self.target is not None:
            means: np.ndarray = self._gaussians(x)[0].mean(0).numpy()
            return means
        labels: np.ndarray = np.array(self.classes)[self._log_probs(x)[1].argmax(-1).numpy()]
        return labels

    def uncertainty(self, x: Any) -> Uncertainty:
        """How uncertain, and why; a pooled temperature belongs to no member, and is left out of it."""
        if self.target is not None:
            mean, variance = self._gaussians(x)
            aleatoric, epistemic = variance.mean(0), mean.var(0, correction=0)
            return Uncertainty(*(_like(x, part) for part in (aleatoric + epistemic, aleatoric, epistemic)))
        members, ensemble = self._log_probs(x)
        if self.scaling == "pooled":
            ensemble = ensemble_log_probs(members.unsqueeze(0))[0]
        total, aleatoric = _entropy(ensemble), _entropy(members).mean(0)
        return Uncertainty(*(_like(x, part) for part in (total, aleatoric, total - aleatoric)))

    def _gaussians(self, x: Any) -> tuple[Tensor, Tensor]:  # -> [members, points] each
        """Mean and variance, in the user's units."""
        assert self.target is not None
        scale = TargetScale(*(torch.tensor([[value]], dtype=torch.float64) for value in self.target))
        mean, variance = scale.in_users_units(self._outputs(x).double()).unbind(-1)
        return mean, variance * self.temperature**2

    @torch.no_grad()
    def _outputs(self, x: Any) -> Tensor:  # -> [members, points, outputs]
        inputs = inputs_of(x).to(self.input_dtype)
        if tuple(inputs.shape[1:]) != self.input_shape:
            raise UserError(
                f"Points of this ensemble have the shape {list(self.input_shape)}, however x has {list(inputs.shape)}."
            )
        device = next(self.members[0].parameters()).device
        pieces = [
            torch.stack([member.eval()(piece.to(device)).cpu() for member in self.members])
            for piece in inputs.split(BATCH)
        ]
        return torch.cat(pieces, dim=1)

    def _log_probs(self, x: Any) -> tuple[Tensor, Tensor]:  # -> [members, points, classes], [points, classes]
        logits = self._outputs(x).unsqueeze(0)  # [1, members, points, classes]
        nothing = torch.zeros(1, logits.shape[2], dtype=torch.int64)
        seen = Predictions(logits, nothing, torch.ones(logits.shape[:3], dtype=torch.bool), nothing)
        count = 1 if self.scaling == "pooled" else len(self.members)
        values = torch.full((1, count), self.temperature, dtype=torch.float64)
        members, ensemble = calibrate.apply(
            seen, calibrate.Temperatures(self.scaling, values, torch.zeros_like(values, dtype=torch.bool))
        )
        return members[0], ensemble[0]

    def save(self, path: str | Path) -> None:
        """Weights and everything else in one safetensors file; only the network's code stays where it is."""
        from safetensors.torch import save_file

        tensors = {
            f"{m}.{name}": value.detach().cpu().contiguous().clone()
            for m, member in enumerate(self.members)
            for name, value in member.state_dict().items()
        }
        described = {
            "ensgap": __version__,
            "members": len(self.members),
            "classes": list(self.classes),
            "setting": dict(self.setting),
            "scaling": self.scaling,
            "temperature": self.temperature,
            "input_shape": list(self.input_shape),
            "input_dtype": str(self.input_dtype).removeprefix("torch."),
            "about": self.about,
            "target": self.target,
        }
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, str(path), metadata={"ensgap": json.dumps(described)})


def load(path: str | Path, network: Callable[..., nn.Module]) -> Ensemble:
    """A saved ensemble; `network` is the function that made its members, or the class. It gets those of its arguments
    that were hyperparameters.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt") as file:
            described = json.loads((file.metadata() or {}).get("ensgap", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a safetensors file, or it is damaged ({error}).") from None
    if described is None:
        raise UserError(f"{path} was not saved by ensgap: it has weights, but no description of an ensemble.")
    arguments = network_arguments(described["setting"])
    takes = inspect.signature(network).parameters
    if not any(p.kind == p.VAR_KEYWORD for p in takes.values()):
        arguments = {name: value for name, value in arguments.items() if name in takes}
    members = []
    for m in range(described["members"]):
        prefix = f"{m}."
        state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        try:
            member = network(**arguments)
            member.load_state_dict(state)
        except (TypeError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"The weights in {path} do not fit the network ({reason}); give the network that it was trained with."
            ) from None
        members.append(member)
    return Ensemble(
        members=members,
        classes=tuple(described["classes"]),
        setting=described["setting"],
        scaling=described["scaling"],
        temperature=described["temperature"],
        input_shape=tuple(described["input_shape"]),
        input_dtype=getattr(torch, described["input_dtype"]),
        about=described["about"],
        target=tuple(described["target"]) if described["target"] else None,
    )


def _entropy(log_probs: Tensor) -> Tensor:  # [..., points, classes] -> [..., points]
    return -(log_probs.exp() * log_probs).nan_to_num(0.0).sum(-1)


def _like(x: Any, found: Tensor) -> Any:
    return found.to(torch.float32) if isinstance(x, Tensor) else found.numpy()
