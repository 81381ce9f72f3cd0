"""The paper's figures beside ours."""

from ensgap.report.paper import paper_figure


def test_cells_of_the_paper_are_found() -> None:
    cell = {"study": "temperature", "task": "nci1", "level": "ensemble", "holdout": "shared", "fraction": 0.01}
    assert paper_figure(setting="scaling=none", metric="error", **cell) == ("19.18", "0.18")  # type: ignore[arg-type]
    assert paper_figure(setting="scaling=pooled", metric="error", **cell) is None  # type: ignore[arg-type]
    found = paper_figure("batch_ensemble", "cifar10", "ensemble", "init=random_sign", "shared", 0.02, "epochs")
    assert found == ("39.69", "2.66")
    found = paper_figure("weight_decay", "nci1", "avg_member", "selected_by=joint", "shared", None, "nll")
    assert found == ("0.485", "0.006")
