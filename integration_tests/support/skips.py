"""Skipped tests: programs that README does not name, and the skip reasons that CI accepts.

A test that needs such a program, or the package of an engine, has the mark `needs("mpirun")`. It runs under
`make test-more`, and is skipped if the program is missing.

With `--strict-skips`, as in CI, a skip for any other reason fails the run: a test that is skipped everywhere tests
nothing, and nobody notices.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import pytest

# Debian package of each program that a test needs although README does not name it. `.ci/bring-tools` installs most.
PACKAGES = {
    "mpirun": "openmpi-bin",
    "mpirun.openmpi": "openmpi-bin",
    "mpicxx.openmpi": "libopenmpi-dev",
    "mpi.h": "libopenmpi-dev",
    "mpiexec.hydra": "mpich",
    "nft": "nftables",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "sbatch": "slurm-client",
    "sinfo": "slurm-client",
    "java": "default-jre-headless",
}
# Python packages that `make engines` installs.
ENGINES = ("ray", "pyspark")
_DAEMONS = "/usr/sbin:/sbin"  # not on every user's PATH

# Patterns of reasons. Only root can emulate hosts, and a container may forbid it even to root. The tools of emulated
# hosts must be installed (.ci/bring-tools).
EXPECTED = (
    r"^The emulated cluster needs root ",
    r"^This process is root, but cannot make network and mount namespaces",
    r"^this machine has no network interface but loopback",
    r"^this process cannot make a mount namespace",
    # Not in every distribution (.ci/run).
    rf"^({'|'.join(map(re.escape, PACKAGES))})\b.* not installed: apt-get install ",
    rf"^({'|'.join(ENGINES)})\b.* not installed: make engines",
    r"^the schema of MPIJob cannot be fetched",
    r"^the time of this run is over",
)


@functools.cache
def _installed(program: str) -> bool:
    if program in ENGINES:
        return importlib.util.find_spec(program) is not None
    if program == "mpi.h":  # the compiler's wrapper comes with the launcher
        command = ["mpicxx.openmpi", "-x", "c++", "-fsyntax-only", "-"]
        if not _installed(command[0]):
            return False
        return subprocess.run(command, input=b"#include <mpi.h>", capture_output=True, timeout=60).returncode == 0
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", os.defpath), _DAEMONS))) is not None


def why_not(programs: Sequence[str]) -> str:
    """Return why tests that need these programs are skipped here, with the packages to install; empty: they run."""
    names = [name for name in programs if not _installed(name)]
    if engines := [name for name in names if name in ENGINES]:
        return f"{', '.join(engines)} not installed: make engines"
    packages = " ".join(dict.fromkeys(PACKAGES[name] for name in names))
    return f"{', '.join(names)} not installed: apt-get install {packages}" if names else ""


def expected(reason: str) -> bool:
    return any(re.search(pattern, reason.removeprefix("Skipped: ")) for pattern in EXPECTED)


class Within:
    """A pytest plugin that skips tests which would begin more than `limit_s` seconds after it was made."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._until_s = time.monotonic() + limit_s

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Skip the test if the time is over, before its fixtures are made."""
        if time.monotonic() > self._until_s:
            pytest.skip(f"the time of this run is over: {self.limit_s:g} s (--within)")


class StrictSkips:
    """A pytest plugin that ends the run with 1 if a test was skipped for a reason that is not expected."""

    def __init__(self) -> None:
        self.unexpected: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._look_at(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Check modules that are skipped as a whole."""
        self._look_at(report)

    def _look_at(self, report: Any) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
            if not expected(reason):
                self.unexpected[report.nodeid] = reason

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.unexpected:
            terminalreporter.section("skips that are not expected (integration_tests/support/skips.py)", red=True)
            for name, reason in self.unexpected.items():
                terminalreporter.line(f"{name}: {reason}")
