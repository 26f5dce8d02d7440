"""Required keys of a saved state of stages, for all frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.errors import UsageError


def check_parts(parts: Sequence[tuple[Mapping[str, Any], Sequence[str]]]) -> None:
    """Raise UsageError if a part lacks a key. `parts`: pairs of a part and the keys that it needs."""
    for part, keys in parts:
        for key in keys:
            if key not in part:
                raise UsageError(
                    f"The saved state lacks {key!r}: found {', '.join(map(repr, part)) or 'nothing'}.",
                    "Load what pipeline.consolidate() or state_dict() returned.",
                )
