"""Show that each mend is needed: its regression test must fail on a Horovod built without any mend.

    python -m integration_tests.mends        (`make mends`; minutes, needs the tools of a host build)

Builds the unmended host (cached afterwards), puts it in front of the installed one for a child pytest, runs every test
that is marked with a mend and exits with 1 if one passes or a mend has no test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

from rich.console import Console
from rich.table import Table

from paceline import config
from paceline.host import build
from paceline.host.patches.table import MENDS

ROOT = Path(__file__).resolve().parents[1]
PYTEST_TIMEOUT_S = 1800


def overlay(wheel: Path, folder: Path) -> None:
    """Install `wheel` into `folder`, to stand before the installed Horovod on PYTHONPATH."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, timeout=600)


def outcomes(overlay: Path, report: Path) -> dict[str, dict[str, bool]]:
    """For each mend the names of its tests and whether each failed."""
    found: dict[str, dict[str, bool]] = {}
    env = {**os.environ, "PYTHONPATH": f"{overlay}{os.pathsep}{ROOT}"}
    for mend in MENDS:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--mend", mend.name]
        command += [f"--junitxml={report}", str(ROOT / "integration_tests")]
        subprocess.run(command, env=env, cwd=ROOT, timeout=PYTEST_TIMEOUT_S)
        found[mend.name] = {
            str(case.get("name")): case.find("failure") is not None or case.find("error") is not None
            for case in xml.etree.ElementTree.parse(report).iter("testcase")
        }
    return found


def main() -> int:
    """Build, run, print the table."""
    console = Console()
    wheel = build.build(
        config.read(), leave_out=[mend.name for mend in MENDS], report=lambda line, _done: console.print(line)
    )
    with tempfile.TemporaryDirectory(prefix="unmended-") as folder:
        overlay(wheel, Path(folder) / "site")
        found = outcomes(Path(folder) / "site", Path(folder) / "report.xml")
    table = Table("mend", "tests", "fail without it", "verdict")
    ok = True
    for name, tests in found.items():
        good = bool(tests) and all(tests.values())
        ok = ok and good
        table.add_row(name, str(len(tests)), str(sum(tests.values())), "needed" if good else "NOT SHOWN")
    console.print(table)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
