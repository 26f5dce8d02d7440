"""Show that each patch is needed: its regression test must fail on a Horovod built without any patch.

    python -m integration_tests.patches [NAME ...]    (`make patches`; minutes, needs the tools of a host build)

Builds the unpatched host (cached afterwards), puts it in front of the installed one for a child pytest, runs every test
that is marked with a patch (with one of those named) and exits with 1 if one passes or a patch has no test.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from integration_tests.support.debug import debug
from paceline import config
from paceline.horovod import build
from paceline.horovod.patches.table import PATCHES

ROOT = Path(__file__).resolve().parents[1]
PYTEST_TIMEOUT_S = 1800


def overlay(wheel: Path, folder: Path) -> None:
    """Install `wheel` into `folder`, which overrides the installed Horovod on PYTHONPATH."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, timeout=600)


def outcomes(names: Sequence[str], overlay: Path, report: Path) -> dict[str, dict[str, bool]]:
    """For each patch of `names` the names of its tests and whether each failed."""
    found: dict[str, dict[str, bool]] = {}
    # A test is to fail for want of the patch, not because Paceline refuses a Horovod without it.
    env = {**os.environ, **debug(check_horovod="no"), "PYTHONPATH": f"{overlay}{os.pathsep}{ROOT}"}
    for name in names:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--more", "--patch", name]
        command += [f"--junitxml={report}", str(ROOT / "integration_tests")]
        subprocess.run(command, env=env, cwd=ROOT, timeout=PYTEST_TIMEOUT_S)
        found[name] = {
            str(case.get("name")): case.find("failure") is not None or case.find("error") is not None
            for case in xml.etree.ElementTree.parse(report).iter("testcase")
        }
    return found


def main() -> int:
    every = [patch.name for patch in PATCHES]
    parser = argparse.ArgumentParser(description="Show that patches of Horovod are needed.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(every)} (default: all)")
    names = parser.parse_args().names or every
    for name in names:
        if name not in every:
            parser.error(f"{name!r} is none of {', '.join(every)}")
    console = Console()
    wheel = build.build(config.read(), leave_out=every, report=lambda line, _done: console.print(line))
    with tempfile.TemporaryDirectory(prefix="unpatched-") as folder:
        overlay(wheel, Path(folder) / "site")
        found = outcomes(names, Path(folder) / "site", Path(folder) / "report.xml")
    table = Table("patch", "tests", "fail without it", "verdict")
    ok = True
    for name, tests in found.items():
        good = bool(tests) and all(tests.values())
        ok = ok and good
        table.add_row(name, str(len(tests)), str(sum(tests.values())), "needed" if good else "NOT SHOWN")
    console.print(table)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
