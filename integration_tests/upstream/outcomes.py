"""What one rank's record of a test file amounts to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class RankOutcome:
    """One rank's run of one file. Tests are named as in the file: `test_x`, `test_x[parameter]`."""

    rank: int
    collected: list[str] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    # Test, with its subtest in parentheses if that failed -> the error's message.
    failed: dict[str, str] = field(default_factory=dict)
    finished: bool = False

    @property
    def unreached(self) -> list[str]:
        """Tests without an outcome, in order: the first of them hung, or was running when the rank died."""
        reached = self.passed | self.skipped | {name.split(" (")[0] for name in self.failed}
        return [name for name in self.collected if name not in reached]


def _name(node: str) -> str:
    return node.split("::")[-1]


def read(path: Path, rank: int) -> RankOutcome:
    result = RankOutcome(rank)
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    for line in lines:
        event = json.loads(line)
        if "collected" in event:
            result.collected = [_name(node) for node in event["collected"]]
        elif "finished" in event:
            result.finished = True
        else:
            _count(result, event)
    # Teardown may fail after the call passed; a test counts once.
    result.passed -= set(result.failed)
    return result


def _count(result: RankOutcome, event: dict[str, str]) -> None:
    name = _name(event["test"])
    if event["outcome"] == "failed":
        if event.get("subtest"):
            name = f"{name} ({event['subtest']})"
        result.failed.setdefault(name, event["text"])
    elif event.get("subtest"):
        return  # a subtest that passed or was skipped is part of its test
    elif event["outcome"] == "skipped":
        result.skipped.add(name)
    elif event["when"] == "call":
        result.passed.add(name)
