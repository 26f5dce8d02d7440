"""Calls of pip for this Python."""

from __future__ import annotations

import importlib.util
import sys

from paceline.errors import UserError


def require(*packages: str) -> None:
    """Raise UserError if one of these packages is missing, as in environments that uv made."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"{sys.executable} has no {', '.join(missing)}, which building and installing Horovod needs.",
            f"Install what is missing: uv pip install {' '.join(missing)} (or python -m ensurepip, for pip alone)",
        )


def command(*words: str) -> list[str]:
    """Return the command line of `pip words...`. Raises UserError without pip."""
    require("pip")
    return [sys.executable, "-m", "pip", *words]
