"""What a rank says to the user while it trains."""

from __future__ import annotations

import sys


def tell(text: str) -> None:
    """One line for the user."""
    print(f"Paceline: {text}", file=sys.stderr, flush=True)
