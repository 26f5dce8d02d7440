"""Messages of a rank to the user during training."""

from __future__ import annotations

import sys


def log(text: str) -> None:
    """Print one line for the user on standard error."""
    print(f"Paceline: {text}", file=sys.stderr, flush=True)
