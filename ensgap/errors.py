"""The one exception a user can cause."""


class UserError(Exception):
    """Bad input; its text is one sentence that says what to do. Study scripts print it and exit with status 2."""
