"""`python -m examples.benchmarks.cluster`: its command runs on host0, and its exit status and signals pass through."""

from __future__ import annotations

import select
import signal
import subprocess
import sys

import pytest

ARGUMENTS = [sys.executable, "-m", "paceline.examples.benchmarks.cluster"]


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ARGUMENTS, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_command_runs_on_host0_and_its_status_passes_through() -> None:
    done = run(
        "--hosts", "2", "--slots", "3", "--rate", "1gbit", "--", "sh", "-c", "hostname; getent hosts host1; exit 5"
    )
    assert done.returncode == 5
    assert done.stdout.split()[0::2] == ["host0", "host1"]
    assert done.stderr == "Emulated cluster, link rate 1gbit; horovodrun -H host0:3,host1:3\n"


def test_the_latency_is_reported() -> None:
    done = run("--hosts", "2", "--latency", "2ms", "--", "ssh", "host1", "hostname")
    assert (done.returncode, done.stdout) == (0, "host1\n"), done.stderr
    assert "link rate unlimited, latency 2ms one way; horovodrun" in done.stderr


def test_options_after_the_command_belong_to_the_command() -> None:
    assert run("--hosts", "1", "echo", "--hosts", "7").stdout == "--hosts 7\n"


def test_without_a_command_a_shell_opens() -> None:
    assert run("--hosts", "1", stdin="hostname\nexit 3\n").stdout == "host0\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_command_first(number: signal.Signals, status: int) -> None:
    process = subprocess.Popen(
        [*ARGUMENTS, "--hosts", "1", "--", "sh", "-c", "echo 1; exec sleep 300"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], 30)[0]
        process.send_signal(number)
        assert process.wait(60) == status
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
