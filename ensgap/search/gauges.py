"""A trial's figures as Ray metrics, which Prometheus collects from every node and Grafana draws."""

from collections.abc import Mapping

from ray.util.metrics import Gauge

FIGURES = {
    "epoch": "Epochs trained",
    "avg_member_nll": "Validation NLL of the average member",
    "ensemble_nll": "Validation NLL of the ensemble",
    "ambiguity": "Average-member NLL minus ensemble NLL",
    "points_per_second": "Training points per second, of all members together; 0 when the trial has ended",
}
TAGS = ("study", "task", "phase", "trial")


class Gauges:
    """The gauges of one worker, which shows one trial after the other; in Prometheus `ray_ensgap_<figure>`."""

    def __init__(self, study: str, task: str, phase: str) -> None:
        self.gauges = {name: Gauge(f"ensgap_{name}", text, tag_keys=TAGS) for name, text in FIGURES.items()}
        for gauge in self.gauges.values():
            gauge.set_default_tags({"study": study, "task": task, "phase": phase})

    def show(self, trial: str, report: Mapping[str, float]) -> None:
        """Show a trial's latest report."""
        shown = dict(report) | ({"points_per_second": 0.0} if report["done"] else {})
        for name, gauge in self.gauges.items():
            if name in shown:
                gauge.set(shown[name], tags={"trial": trial})
