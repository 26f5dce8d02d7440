"""Names of ranks in errors of dead Ray workers; Ray itself knows only processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray


def results(references: Sequence[Any]) -> list[Any]:
    """Return the workers' results, by rank. Raises as ray.get; the error of a dead worker has its rank in the text."""
    try:
        found: list[Any] = ray.get(list(references))
        return found
    except ray.exceptions.RayActorError as error:
        dead = [str(rank) for rank, reference in enumerate(references) if _died(reference)]
        if dead:
            error.error_msg = f"Rank {', '.join(dead)} died: its worker ended. {error.error_msg}"
        raise


def _died(reference: Any) -> bool:
    try:
        ray.get(reference, timeout=0)
    except ray.exceptions.RayActorError:
        return True
    except Exception:  # it raised, or is still running
        return False
    return False
