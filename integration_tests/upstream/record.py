"""One process of an upstream test run: pytest, with every outcome recorded as it happens.

    python record.py FOLDER PYTEST-ARGUMENTS...

Runs in the environment that has upstream's pytest, so it imports nothing of ours. Lines of FOLDER/rank<n>.jsonl are
written at once: a rank that hangs or dies leaves its outcomes so far. `expectations.py` reads them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest


class Recorder:
    """A pytest plugin that appends one JSON object per event to `path`."""

    def __init__(self, path: Path) -> None:
        # Appending and unbuffered, because forked children (pytest-forked) write here, too.
        self._file = path.open("ab", buffering=0)

    def _write(self, **event: Any) -> None:
        self._file.write(json.dumps(event).encode() + b"\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write(collected=[item.nodeid for item in session.items])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported."""
        if report.failed:
            self._write(test=report.nodeid, outcome="failed", when="collect", text=str(report.longrepr)[-2000:])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test, or one of its subtests."""
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash else str(report.longrepr or "")
        subtest = repr(report.context) if hasattr(report, "context") else ""
        self._write(test=report.nodeid, subtest=subtest, outcome=report.outcome, when=report.when, text=text[-2000:])

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write(finished=int(exitstatus))


if __name__ == "__main__":
    rank = os.environ.get("HOROVOD_RANK", "0")
    sys.exit(pytest.main(sys.argv[2:], plugins=[Recorder(Path(sys.argv[1]) / f"rank{rank}.jsonl")]))
