"""Predictions: what training hands to analysis. Logits, labels and the holdout mask of a trial, in one `.npz` file."""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ensgap.errors import UserError
from ensgap.storage import Place, write_whole


@dataclass(frozen=True)
class Predictions:
    """The logits of E ensembles of M members at P points each, and who held which point out."""

    logits: Tensor  # [ensembles, members, points, classes]; of a regression [..., 2]: mean and variance of a Gaussian
    labels: Tensor  # [ensembles, points]; floating-point ones are the targets of a regression
    held: Tensor  # [ensembles, members, points], bool: the member did not train on the point
    index: Tensor  # [ensembles, points]: the points' places in the pool or in the test data
    identity: dict[str, Any] = field(default_factory=dict)  # task, setting, seeds, …: how to make them again

    def __post_init__(self) -> None:
        ensembles, members, points, _ = self.logits.shape
        expected = {"labels": (ensembles, points), "held": (ensembles, members, points), "index": (ensembles, points)}
        for name, shape in expected.items():
            if tuple(getattr(self, name).shape) != shape:
                raise ValueError(f"{name} must have shape {shape}, however: {tuple(getattr(self, name).shape)}")

    @property
    def order(self) -> int:
        """How many members hold out each point: M for a shared holdout and for test data."""
        counts = self.held.sum(1)
        order = int(counts.flatten()[0])
        if bool((counts != order).any()):
            raise ValueError("points must all be held out by equally many members")
        return order

    def holders(self) -> Tensor:
        """The k members that held each point out, [ensembles, k, points]; an error where k is 1."""
        if self.order == 1:
            raise UserError(
                "A disjoint holdout (order 1) has no joint metric, because no point is held out by two members; "
                "choose --holdout overlapping, shared or an order from 2 up."
            )
        return self.held.int().argsort(dim=1, descending=True, stable=True)[:, : self.order]

    def by_point(self) -> tuple[Tensor, Tensor]:
        """The logits of just the k members that held a point out, [ensembles, k, points, classes], and its labels."""
        who = self.holders()
        if who.shape[1] == self.logits.shape[1]:
            return self.logits, self.labels
        return self.logits.gather(1, who.unsqueeze(-1).expand(-1, -1, -1, self.logits.shape[-1])), self.labels

    def by_member(self) -> tuple[Tensor, Tensor]:
        """Each member's logits at its own held-out points, [ensembles, members, own points, classes], and their labels
        [ensembles, members, own points].
        """
        ensembles, members, _, classes = self.logits.shape
        labels = self.labels.unsqueeze(1).expand(-1, members, -1)
        return (
            self.logits[self.held].view(ensembles, members, -1, classes),
            labels[self.held].view(ensembles, members, -1),
        )

    @classmethod
    def join(cls, parts: Sequence["Predictions"]) -> "Predictions":
        """The ensembles of several trials as one; the identity is the first one's."""
        if len(parts) == 1:
            return parts[0]
        logits, labels, held, index = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("logits", "labels", "held", "index")
        )
        return cls(logits, labels, held, index, parts[0].identity)

    def save(self, path: Place, step: float | None = None) -> None:
        """Write them, whole or not at all. With a `step` small: logits relative to the last class, which is left out
        then, as multiples of it (of 2, 4, … times it, if 16 bits do not hold the largest), so that they are at most
        half a step off, and whole numbers in as few bytes as hold them.
        """
        labels, index = self.labels.numpy(), self.index.numpy()
        arrays = {
            **({"logits": self.logits.numpy()} if step is None else self._in_steps(step)),
            "labels": labels if step is None else _shortest(labels),
            "held": self.held.numpy(),
            "index": index if step is None else _shortest(index),
            "identity": np.array(json.dumps(self.identity, sort_keys=True)),
        }
        write_whole(path, _packed(arrays, zipfile.ZIP_DEFLATED if step is None else zipfile.ZIP_LZMA))

    def _in_steps(self, step: float) -> dict[str, Any]:
        largest = torch.finfo(torch.half).max
        logits = self.logits.clamp(-largest, largest)
        if self.labels.is_floating_point() or bool(logits.isnan().any()):
            return {"logits": logits.half().numpy()}
        relative = logits[..., :-1] - logits[..., -1:]
        while bool((relative.abs() > 32767 * step).any()):
            step *= 2
        steps = (relative / step).round().short().numpy()
        planes = np.stack([steps >> 8, steps & 255]).astype(np.uint8)  # bytes of a kind compress better together
        return {"steps": planes, "step": np.array(step, np.float32)}

    @classmethod
    def load(cls, path: Place) -> "Predictions":
        """Read them; a file that is missing or damaged is named."""
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                tensors = {name: torch.from_numpy(file[name]) for name in ("labels", "held", "index")}
                tensors["logits"] = _logits_of(file)
                for name, tensor in tensors.items():
                    if tensor.dtype == torch.half:
                        tensors[name] = tensor.float()
                    elif name in ("labels", "index") and not tensor.is_floating_point():
                        tensors[name] = tensor.long()
                return cls(**tensors, identity=json.loads(str(file["identity"])))
        except FileNotFoundError:
            raise UserError(f"There are no predictions at {path}.") from None
        except Exception as error:
            raise UserError(
                f"The predictions {path} are damaged ({error}); delete them and run the study with --resume."
            ) from None


def _packed(arrays: Mapping[str, Any], compression: int) -> bytes:
    """An `.npz` file; NumPy reads all compressions of zip files, and writes one."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
    return buffer.getvalue()


def _logits_of(file: Any) -> Tensor:  # -> [ensembles, members, points, classes]
    if "steps" not in file:
        return torch.from_numpy(file["logits"])
    high, low = file["steps"]  # [2, ensembles, members, points, classes - 1]
    relative = (high.astype(np.int8) * np.float32(256) + low) * file["step"]
    return nn.functional.pad(torch.from_numpy(relative), (0, 1))


def _shortest(values: np.ndarray) -> np.ndarray:
    """The same whole numbers in the smallest type that holds them; anything else as it is."""
    if values.dtype.kind not in "iu":
        return values
    kinds = (np.int8, np.int16, np.int32)
    reach = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    return values.astype(next((kind for kind in kinds if reach <= np.iinfo(kind).max), np.int64))
