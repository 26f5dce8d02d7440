"""Which tests may be skipped: with `--strict-skips`, what CI runs with, any other skip fails the run.

A test that is skipped everywhere tests nothing, and nobody notices.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

# Patterns of reasons. Who is no root makes no hosts; who is, may be in a container without the right to. Programs that
# are missing are no such reason: root brings them (.ci/bring-tools).
EXPECTED = (
    r"^The emulated cluster needs root ",
    r"^This process is root, but cannot make network and mount namespaces",
    r"^this machine has no network interface but loopback",
    # Schedulers, MPI and its Python face are not in every distribution (.ci/run).
    r"^(munge|slurm|scontrol|sbatch|srun|sinfo|mpi)[\w., ]* not installed[:;] apt-get install ",
    r"^mpi(run\.openmpi|cxx\.openmpi|\.h).*: not installed; ",
    r"^(mpirun|mpi4py) is not installed \(",
    r"^the schema of MPIJob cannot be fetched",
)


def expected(reason: str) -> bool:
    """Whether a test may be skipped for this reason."""
    return any(re.search(pattern, reason.removeprefix("Skipped: ")) for pattern in EXPECTED)


class StrictSkips:
    """A pytest plugin that ends the run with 1 if a test was skipped for a reason that is not expected."""

    def __init__(self) -> None:
        self.unexpected: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See pytest."""
        self._look_at(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """See pytest: whole modules are skipped here."""
        self._look_at(report)

    def _look_at(self, report: Any) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
            if not expected(reason):
                self.unexpected[report.nodeid] = reason

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """See pytest."""
        if self.unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """See pytest."""
        if self.unexpected:
            terminalreporter.section("skips that are not expected (integration_tests/support/skips.py)", red=True)
            for name, reason in self.unexpected.items():
                terminalreporter.line(f"{name}: {reason}")
