"""Settings: where their values go, and which of them may share a stack."""

from ensgap.hyperparameters import Setting, in_words, member_vectors, network_arguments, order_of, train_config
from ensgap.train import TrainConfig

SETTING: Setting = {"lr": 0.01, "weight_decay": 1e-3, "batch_size": 32, "width": 64, "activation": "relu"}


def test_values_go_to_training_or_to_the_network() -> None:
    assert train_config(TrainConfig(epochs=7), SETTING) == TrainConfig(epochs=7, lr=0.01, batch_size=32)
    assert train_config(TrainConfig(), {"weight_decay": 1e-3}) == TrainConfig()
    assert network_arguments(SETTING) == {"width": 64, "activation": "relu"}


def test_what_may_differ_inside_a_stack_becomes_vectors_over_its_members() -> None:
    vectors = member_vectors(TrainConfig(lr=0.5), {"weight_decay": 1e-3, "batch_size": 32}, 2)
    assert vectors == {"lr": [0.5, 0.5], "weight_decay": [1e-3, 1e-3], "label_smoothing": [0.0, 0.0]}
    assert member_vectors(TrainConfig(), SETTING, 1)["lr"] == [0.01]


def test_order_and_words() -> None:
    settings: list[Setting] = [{"a": 2}, {"a": "x"}, {"a": 10.0}]
    assert sorted(settings, key=order_of) == [{"a": 2}, {"a": 10.0}, {"a": "x"}]
    assert in_words({"weight_decay": 0.0031622, "width": 64}) == "weight decay 0.003162, width 64"
