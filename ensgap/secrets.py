"""Keeps passwords out of everything that is printed or written."""

import re

HIDDEN = "***"
_PASSWORD = re.compile(r"(?P<before>[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@?#]*:)\S*(?=@)")
_PARAMETER = re.compile(
    r"(?P<before>[?&](?:[a-z0-9_-]*(?:password|secret|token|signature|credential|sslkey)[a-z0-9_-]*|access_key|key)=)[^&\s#'\"]*",
    re.IGNORECASE,
)


def mask(text: str) -> str:
    """The text with the password of every address in it (`scheme://user:password@host?secret_key=…`) hidden."""
    return _PARAMETER.sub(rf"\g<before>{HIDDEN}", _PASSWORD.sub(rf"\g<before>{HIDDEN}", text))
