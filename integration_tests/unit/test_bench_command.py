"""`paceline bench baseline` refuses what it cannot use before anything is started."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paceline.benchmarks import systems
from paceline.benchmarks.hosts import interface_of
from paceline.errors import UserError


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paceline.launch.cli", "bench", "baseline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hosts", "0"], "--hosts 0"),
        (["--hosts", "3", "--np", "4"], "--np 4 cannot be used with --hosts 3"),
        (["--hosts", "1", "--np", "0"], "--np 0"),
        (["--time-limit-s", "0"], "--time-limit-s 0"),
        (["--time-limit-s", "nan"], "--time-limit-s nan"),
        (["--turns", "0"], "--turns 0"),
        (["--model", "mini", "--model", "resnet51"], "Did you mean resnet50?"),
        (["--hosts", "2", "--rate", "fast"], "'fast'"),
    ],
)
def test_bad_input_is_named_without_a_traceback(arguments: list[str], said: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_help_names_the_models_and_the_limits() -> None:
    done = bench("--help")
    assert done.returncode == 0 and "resnet50" in done.stdout and "--time-limit-s" in done.stdout


def test_an_unknown_system_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean horovod"):
        systems.find("horovodd")


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_every_system_of_the_table_can_be_loaded(name: str) -> None:
    assert callable(systems.load(systems.find(name).setup))


def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    with pytest.raises(UserError, match=r"No interface .* 192\.0\.2\.1\."):
        interface_of("192.0.2.1")  # reserved for documents
