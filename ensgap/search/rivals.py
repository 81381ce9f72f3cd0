"""What a running trial knows of the others: the curves of those that were trained to the end."""

import json

from ensgap.folder import StudyFolder
from ensgap.pruning import Curve, is_beaten
from ensgap.spec import TrialSpec


class Rivals:
    """The search trials of a study's folder that finished, each read once."""

    def __init__(self, folder: StudyFolder, objectives: tuple[str, ...]) -> None:
        self.folder, self.objectives = folder, objectives
        self.seen: dict[str, tuple[list[int], Curve] | None] = {}  # by folder: replicates and curve, if it finished

    def beat(self, spec: TrialSpec, epochs: int, curve: Curve) -> bool:
        """Whether they have clearly beaten a trial of so many epochs on both objectives, from its curve so far."""
        self._look()
        comparable = [
            rival
            for replicates, rival in filter(None, self.seen.values())
            if replicates == list(spec.replicates) and rival.epochs[-1] == epochs
        ]
        return is_beaten(curve.of_objectives(self.objectives), comparable)

    def _look(self) -> None:
        for file in self.folder.trials.glob("search-*/trial.json"):
            if file.parent.name not in self.seen:
                record = json.loads(file.read_bytes())
                curves = record["details"].get("curves")
                usable = record["status"] == "finished" and curves
                found = (record["identity"]["replicates"], Curve.of(curves)) if usable else None
                self.seen[file.parent.name] = found
