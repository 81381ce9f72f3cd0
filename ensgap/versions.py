"""The versions of what the figures depend on."""

import platform
from importlib.metadata import PackageNotFoundError, version

from ensgap import __version__


def versions() -> dict[str, str]:
    """Of ensgap, Python and the packages that matter."""
    found = {"ensgap": __version__, "python": platform.python_version()}
    for package in ("torch", "ray", "optuna", "numpy", "scikit-learn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
