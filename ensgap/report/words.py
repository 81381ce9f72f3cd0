"""Metrics in words: what they are called in tables, on axes and in sentences, and how their numbers are shown."""

from dataclasses import dataclass

from ensgap.gap import Estimate
from ensgap.report.tables import Column


@dataclass(frozen=True)
class Words:
    """How a metric is spoken of."""

    name: str  # in a sentence: "test NLL"
    title: str  # above a column
    axis: str  # after "Test" or "Validation"
    gap: str  # of differences
    about: str  # in a caption
    digits: int = 4
    scale: float = 1.0


METRIC_WORDS = {
    "nll": Words("NLL", "NLL", "NLL (nats)", "NLL (nats)", "NLL"),
    "error": Words("error", "Error (%)", "error (%)", "Error (percentage points)", "error", 2, 100.0),
    "ece": Words("ECE", "ECE", "ECE", "ECE", "calibration error"),
    "brier": Words("Brier score", "Brier", "Brier score", "Brier score", "Brier score"),
    "rmse": Words("RMSE", "RMSE", "RMSE (units of the target)", "RMSE (units of the target)", "RMSE of the mean"),
    "coverage": Words(
        "coverage error",
        "Coverage error (%)",
        "coverage error (%)",
        "Coverage error (percentage points)",
        "coverage error: how far, on average, the share of points inside the central 10%, 20%, …, 90% intervals is "
        "from that percentage",
        1,
        100.0,
    ),
}


def metric_column(metric: str) -> Column:
    """A column of that metric."""
    words = METRIC_WORDS[metric]
    return Column(metric, words.title, words.digits, words.scale)


def axis_label(metric: str, data: str = "") -> str:
    """An axis of that metric: `Test error (%)`, `Error (%)`."""
    text = f"{data} {METRIC_WORDS[metric].axis}".strip()
    return text[0].upper() + text[1:]


def averaged(*replicates: int) -> str:
    """What stands in a table's cells, with what uncertainty."""
    counts = sorted(set(replicates))
    return "one replicate" if counts == [1] else f"mean ± SEM over {' or '.join(map(str, counts))} replicates"


def bars(replicates: int, what: str = "Bars") -> str:
    """A caption's sentence about bars or bands, if there are any."""
    return f"{what}: ± SEM over {replicates} replicates." if replicates > 1 else "One replicate, so without SEM."


def signed(metric: str, value: float) -> str:
    """A difference of that metric as its column shows it."""
    words = METRIC_WORDS[metric]
    return f"{words.scale * value:+.{words.digits}f}"


def interval_of(metric: str, estimate: Estimate) -> str:
    """A difference's 95% interval."""
    return f"95% interval {signed(metric, estimate.low)} to {signed(metric, estimate.high)}"


def unit_of(metric: str) -> str:
    """What a difference is counted in, after its number: `test NLL`, `percentage points of test error`."""
    words = METRIC_WORDS[metric]
    return f"percentage points of test {words.name}" if words.scale == 100 else f"test {words.name}"
