"""Horovod's timelines in tests: a thread writes them with a delay, and drops the remaining events when it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from integration_tests.support.merging import repeat


def events(path: Path) -> list[dict[str, Any]]:
    """All events, without one that is being written."""
    lines = path.read_text().splitlines(keepends=True)
    whole = [line.rstrip(",\n") for line in lines if line.endswith("},\n")]
    found: list[dict[str, Any]] = json.loads(f"[{','.join(whole)}]")
    return found


def reach(path: Path, rank: int, name: str) -> None:
    """Broadcast on all ranks under this name until the first rank's timeline has it, and so everything before it."""
    import horovod.torch as hvd
    import torch

    repeat(
        "torch",
        lambda _: hvd.broadcast(torch.zeros(1), 0, name=name),
        lambda: rank > 0 or (path.exists() and name in path.read_text()),
    )
