"""Internal constants of the ranks, set by a test (docs/reference/options.md)."""

from __future__ import annotations

NAME = "PACELINE_DEBUG"


def debug(**values: object) -> dict[str, str]:
    """The variable with these values, for `env=` of a world."""
    return {NAME: ",".join(f"{name}={value}" for name, value in values.items())}
