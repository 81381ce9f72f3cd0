"""Passwords in addresses do not survive masking; everything else does."""

import pytest

from ensgap.secrets import mask


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg://ann:pw@db:5432/studies", "postgresql+psycopg://ann:***@db:5432/studies"),
        ("s3://KEY:pw%2F@bucket/x?scheme=http", "s3://KEY:***@bucket/x?scheme=http"),
        ("postgresql://ann:p@w@db/x and s3://k:pw@b", "postgresql://ann:***@db/x and s3://k:***@b"),
        ("redis://:pw@host:6379", "redis://:***@host:6379"),
        ("s3://b/x?secret_key=pw&region=eu", "s3://b/x?secret_key=***&region=eu"),
        ("postgresql://db/x?user=ann&password=pw", "postgresql://db/x?user=ann&password=***"),
        ("abfs://c@account/x?sas_token=pw;x=1", "abfs://c@account/x?sas_token=***;x=1"),
    ],
)
def test_passwords_are_masked(text: str, shown: str) -> None:
    assert mask(text) == shown
    assert mask(shown) == shown


@pytest.mark.parametrize("text", ["s3://bucket/a:b", "sqlite:///studies.db", "reports/x --lr 0.1", "gs://b/a@b", ""])
def test_everything_else_is_left_as_it_is(text: str) -> None:
    assert mask(text) == text
