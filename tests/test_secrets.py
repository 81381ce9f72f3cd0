"""No password gets through, and addresses without one stay as they are."""

import pytest

from ensgap.secrets import mask


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://me:pa55@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql+psycopg://me:p@a:5@host/db", "postgresql+psycopg://me:***@host/db"),
        ("redis://:pa55@host", "redis://:***@host"),
        ("postgresql://me:pa/55@host/db", "postgresql://me:***@host/db"),
        ("mysql://h/db?user=me&password=pa55&x=1", "mysql://h/db?user=me&password=***&x=1"),
        (
            "s3://bucket/way?access_key=AK&secret_key=SK&region=x",
            "s3://bucket/way?access_key=***&secret_key=***&region=x",
        ),
        ("--optuna-storage postgresql://a:b@c/d --out x", "--optuna-storage postgresql://a:***@c/d --out x"),
        ("two: a://u:p@h and b://u:q@h", "two: a://u:***@h and b://u:***@h"),
    ],
)
def test_passwords_are_hidden(text: str, masked: str) -> None:
    assert mask(text) == masked
    assert mask(masked) == masked


@pytest.mark.parametrize(
    "text",
    ["sqlite:///optuna.db", "postgresql://me@host:5432/db", "s3://bucket/way?region=x", "ray://10.0.0.1:10001", "a: b"],
)
def test_what_has_none_stays(text: str) -> None:
    assert mask(text) == text
