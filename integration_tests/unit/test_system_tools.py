"""`make test` on a machine without the emulated cluster's tools.

Root's used to stop with "Missing on this machine: ssh server (sshd)", also all the tests that need no such tool. Here
make meets an empty machine: a PATH with little more than a shell, TOOLS_ROOT for what lies outside of it, and programs
that stand in for apt-get, id and the Python that would run pytest.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.packages import ROOT
from paceline.examples.benchmarks.cluster import tools

BASICS = ("sh", "make", "dirname", "sed", "mktemp", "rm", "mkdir", "chmod", "tail", "grep", "touch")
PACKAGES = set(tools.PACKAGES.values())
NO_SERVICE = Path("etc/ssh/sshd_not_to_be_run")
SKIPPED = "tests in integration_tests/cluster will be skipped"


class Machine:
    """A machine with make and a finished environment of ours, and without the tools of the cluster."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin, self.venv = folder / "root", folder / "bin", folder / "venv"
        for path in (self.root / "usr/sbin", self.bin, self.venv / "bin", self.venv / "stamps"):
            path.mkdir(parents=True)
        for name in BASICS:
            found = shutil.which(name)
            assert found, name
            (self.bin / name).symlink_to(found)
        self.program(self.venv / "bin/python", 'echo "would run: $*"')
        for stamp in ("venv", "build-tools", "install", "horovod", "doctest"):
            (self.venv / "stamps" / stamp).touch()
        self.user(0)

    def program(self, path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def user(self, number: int) -> None:
        self.program(self.bin / "id", f"echo {number}")

    def apt(self, installs: bool) -> None:
        """An apt-get that notes what it is called with and whether sshd may become a service by it."""
        bring = f'for tool in {" ".join(tools.PACKAGES)}; do touch "$sbin/$tool"; chmod +x "$sbin/$tool"; done'
        lines = [
            f"sbin={self.root}/usr/sbin",
            f'echo "$*" >>{self.root}/apt.log',
            f"[ -e {self.root / NO_SERVICE} ] && echo no service >>{self.root}/apt.log",
            'case "$*" in *" install "*) ' + (bring if installs else "echo no network; exit 100") + " ;; esac",
        ]
        self.program(self.bin / "apt-get", "\n".join(lines))

    @property
    def apt_calls(self) -> list[str]:
        log = self.root / "apt.log"
        return log.read_text().splitlines() if log.exists() else []

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.bin), "TOOLS_ROOT": str(self.root)}
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(command, cwd=ROOT, env=env, text=True, timeout=60, **streams)

    def make(self, *words: str) -> str:
        """make's output; it must succeed."""
        done = self.run("make", f"VENV={self.venv}", *words)
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def pytest_line(output: str) -> str:
    """The command line of pytest; make prints it, and so does the Python that stands in."""
    (line,) = (line for line in output.splitlines() if line.startswith("would run: -m pytest"))
    return line


def test_root_with_apt_is_told_and_gets_them(machine: Machine) -> None:
    machine.apt(installs=True)
    output = machine.make("test")
    told, run = output.index("Installing the system packages"), output.index("would run")
    assert told < run
    assert all(package in output[told : output.index("\n", told)] for package in PACKAGES)
    update, *_, install, _ = machine.apt_calls
    assert update.endswith(" update")
    assert set(install.split()) >= PACKAGES
    assert SKIPPED not in output
    folders = ("unit", "ranks", "faults", "cluster")
    assert pytest_line(output).endswith(" ".join(f"integration_tests/{folder}" for folder in folders))
    assert f"remove {machine.root / NO_SERVICE}" in output and (machine.root / NO_SERVICE).exists()
    assert machine.apt_calls.count("no service") == 2, "it stood there before apt-get ran"
    # The next call finds everything there and is silent.
    before = machine.apt_calls
    assert "packages" not in machine.make("test")
    assert machine.apt_calls == before


def test_packages_that_cannot_be_had_stop_no_other_test(machine: Machine) -> None:
    machine.apt(installs=False)
    output = machine.make("test")
    assert "no network" in output
    assert "apt-get update && apt-get install" in output
    assert SKIPPED in output
    assert "integration_tests/unit" in pytest_line(output)
    assert not (machine.root / NO_SERVICE).exists(), "whoever installs sshd later wants it to run"


@pytest.mark.parametrize(("user", "apt"), [(1000, True), (0, False)], ids=["not-root", "no-apt"])
def test_others_get_the_command(machine: Machine, user: int, apt: bool) -> None:
    machine.user(user)
    if apt:
        machine.apt(installs=True)
    output = machine.make("test")
    (command,) = (line for line in output.splitlines() if "apt-get update && apt-get install" in line)
    assert set(command.split("install")[1].split()) == PACKAGES
    assert SKIPPED in output
    assert "integration_tests/unit" in pytest_line(output)
    assert not machine.apt_calls


def test_folders_and_marks_are_chosen_and_without_the_cluster_nothing_is_installed(machine: Machine) -> None:
    machine.apt(installs=True)
    output = machine.make("test", "TESTS=unit ranks")
    assert "apt-get" not in output and SKIPPED not in output
    assert not machine.apt_calls
    assert pytest_line(output).endswith("integration_tests/unit integration_tests/ranks") and "more" not in output
    assert "--more -m more or needs integration_tests/ranks" in pytest_line(machine.make("test-more", "TESTS=ranks"))


def test_one_command_brings_all_that_a_build_needs(machine: Machine) -> None:
    done = machine.run(".ci/check-tools", "build")
    assert done.returncode == 1
    (command,) = (line for line in done.stdout.splitlines() if "apt-get update && apt-get install" in line)
    assert command.split("install")[1].split() == ["python3", "python3-venv", "python3-dev", "g++", "cmake"]


_WITHOUT_TOOLS = """
import os, sys
import pytest
from paceline.examples.benchmarks.cluster import tools
tools.find, os.geteuid = lambda program: None, lambda: 0
sys.exit(pytest.main(["-q", "-rs", "-p", "no:cacheprovider", "integration_tests/cluster/test_cluster_hosts.py"]))
"""


def test_tests_of_the_cluster_say_what_they_lack() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TOOLS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SKIPPED" in done.stdout and "failed" not in done.stdout and "error" not in done.stdout
    assert "sshd" in done.stdout and "apt-get install" in done.stdout
