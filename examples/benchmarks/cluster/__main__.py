"""`python -m examples.benchmarks.cluster`: a command or a shell inside an emulated cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from paceline.examples.benchmarks.cluster.cluster import Cluster
from paceline.launch.reports import Reports

_LOOK_S = 0.02


@click.command(
    "python -m examples.benchmarks.cluster",
    cls=Reports,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--hosts", default=4, show_default=True, help="Number of hosts: host0, host1, ...")
@click.option(
    "--rate", default=None, metavar="RATE", help="Rate of every link, e.g. 200mbit or 1gbit. [default: no limit]"
)
@click.option(
    "--latency",
    default=None,
    metavar="TIME",
    help="Time from host to host, one way, e.g. 500us or 2ms. [default: 0]",
)
@click.option("--slots", default=1, show_default=True, help="Processes per host in the printed host list.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def cluster_command(hosts: int, rate: str | None, latency: str | None, slots: int, command: tuple[str, ...]) -> None:
    """Run COMMAND on host0 of an emulated cluster; without COMMAND, open a shell there.

    The cluster consists of network namespaces on this machine, which see its files and reach each other by name and
    by ssh. It needs root and is removed when COMMAND ends. The exit status is COMMAND's; 128 + n if signal n ended it.

    For example: ... --hosts 2 --rate 1gbit -- horovodrun -np 2 -H host0:1,host1:1 python train.py
    """
    with Cluster(hosts=hosts, rate=rate, slots=slots, latency=latency) as cluster:
        links = f"link rate {rate or 'unlimited'}" + (f", latency {latency} one way" if latency else "")
        click.echo(f"Emulated cluster, {links}; horovodrun -H {cluster.host_list}", err=True)
        argv = list(command) or [os.environ.get("SHELL") or "/bin/sh"]
        status = _run_attached(lambda: cluster.popen(argv))
    sys.exit(status if status >= 0 else 128 - status)


def _run_attached(start: Callable[[], subprocess.Popen[Any]]) -> int:
    """Wait for a command that owns our terminal, as a shell does: signals end the command first, then this process."""
    process: subprocess.Popen[Any] | None = None
    early: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        # Ctrl-C at a terminal reaches the command directly; all other signals reach only this process.
        if process is None:
            early.append(number)
        elif not (number == signal.SIGINT and sys.stdin.isatty()):
            process.send_signal(number)

    with _handling((signal.SIGINT, signal.SIGTERM), pass_on):
        process = start()
        for number in early:
            process.send_signal(number)
        # A signal that arrives just before a blocking wait would be handled only after the command has ended.
        while (status := process.poll()) is None:
            time.sleep(_LOOK_S)
        return status


@contextmanager
def _handling(numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


if __name__ == "__main__":
    cluster_command.main()
