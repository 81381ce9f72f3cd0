"""Addresses may carry passwords; nothing that is shown or written may."""

import re

_USERINFO = re.compile(r"(?P<before>\w://[^\s:@/]*:)\S+@")  # up to the last @: a password may hold one
_PARAMETER = re.compile(
    r"(?P<before>[?&;\s](?:[\w-]*(?:password|passwd|secret|token|access_key|credential)[\w-]*)=)[^&;\s'\"]+",
    re.IGNORECASE,
)


def mask(text: str) -> str:
    """The text with every password in an address (`user:password@`, `?secret_key=…`) as `***`."""
    return _PARAMETER.sub(r"\g<before>***", _USERINFO.sub(r"\g<before>***@", text))
