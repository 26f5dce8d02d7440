"""Checks between the hosts given with -H: ssh, clocks, and connections from each to each."""

from __future__ import annotations

import contextlib
import json
import select
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.launch.doctor import probe
from paceline.launch.doctor.findings import Finding, error, ok, warning
from paceline.launch.rank import interfaces
from paceline.launch.rank.identity import FIRST_PORT, PORTS

# New host keys are accepted, as by horovodrun; otherwise ssh would prompt for a new host.
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "ConnectTimeout=8")
START_LIMIT_S = 25.0
CONNECT_LIMIT_S = 3.0
CLOCK_LIMIT_S = 1.0  # beyond this, times of different hosts in a trace are a step or more apart
FIREWALL = "Let the firewall pass TCP between all hosts of a job: Gloo and the rendezvous use any port above 1023."


class _Silent(Exception):
    """A host does not answer; the text has its other output."""


class _Probe:
    """The probe on one host, over ssh."""

    def __init__(self, host: str) -> None:
        self.host = host
        source = Path(probe.__file__).read_text()
        words = ["python3", "-c", source, str(FIRST_PORT), str(PORTS), str(CONNECT_LIMIT_S)]
        self._process = subprocess.Popen(
            [*SSH, host, shlex.join(words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def ask(self, what: Any, limit_s: float) -> Any:
        """Send a question and return the answer. Raises _Silent."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
        # One line is requested at a time and written at once, so our buffer stays empty.
        line = b""
        if select.select([self._process.stdout], [], [], limit_s)[0]:
            line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        if self._process.poll() is None:
            raise _Silent(f"no answer within {limit_s:g} s")
        assert self._process.stderr is not None
        said = self._process.stderr.read().decode(errors="replace").split("\n")
        raise _Silent(" ".join(line.strip() for line in said[-3:] if line.strip()) or "ssh ended without a word")

    def end(self) -> None:
        """End the probe; on the host it ends with its input."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(2.0)


def names(host_list: str) -> list[str]:
    """Hosts of `-H a:2,b:2`."""
    return [part.partition(":")[0] for part in host_list.split(",") if part]


def between(host_list: str) -> Iterator[Finding]:
    """Yield all findings about these hosts."""
    probes = [_Probe(host) for host in names(host_list)]
    try:
        up: dict[_Probe, list[int]] = {}
        for one in probes:
            try:
                answer = one.ask("hello", START_LIMIT_S)
            except _Silent as silent:
                yield error(
                    f"ssh {one.host}",
                    str(silent),
                    f"`ssh -o BatchMode=yes {one.host} python3 -V` must work without a password: horovodrun needs it. "
                    "`paceline rank` needs no ssh.",
                )
                continue
            up[one] = answer["ports"]
            yield ok(f"ssh {one.host}", f"works; it calls itself {answer['name']}")
        for one in up:
            yield from _clock(one)
        for one in up:
            yield from _connections(one, {other.host: ports for other, ports in up.items() if other is not one})
    finally:
        for one in probes:
            one.end()


def _clock(one: _Probe) -> Iterator[Finding]:
    what = f"clock of {one.host}"
    begin_s = time.time()
    try:
        theirs_s = one.ask("time", START_LIMIT_S)
    except _Silent as silent:
        yield error(what, str(silent), f"See what {one.host} does.")
        return
    passed_s = time.time() - begin_s
    ahead_s = theirs_s - (begin_s + passed_s / 2)
    found = f"{ahead_s:+.3f} s from this host's, within {passed_s / 2:.3f} s"
    if abs(ahead_s) > CLOCK_LIMIT_S + passed_s / 2:
        yield warning(what, found, "Let NTP or chrony set the clocks: times in traces and logs do not fit together.")
    else:
        yield ok(what, found)


def _connections(one: _Probe, others: dict[str, list[int]]) -> Iterator[Finding]:
    what = f"connections from {one.host}"
    wanted = [(host, port) for host, ports in others.items() for port in ports]
    try:
        tried = one.ask(wanted, START_LIMIT_S + CONNECT_LIMIT_S * len(wanted))
    except _Silent as silent:
        yield error(what, str(silent), f"See what {one.host} does.")
        return
    failed = [(host, port, why) for host, port, why in tried if why]
    for host, port, why in failed:
        astray = f"/etc/hosts of {one.host} gives {host} a loopback address: write its network address there."
        remedy = astray if interfaces.is_loopback(why) else FIREWALL
        yield error(f"{one.host} to {host}", f"port {port} cannot be reached: {why}", remedy)
    if wanted and not failed:
        ports = ", ".join(f"{host}:{port}" for host, port in wanted[:4])
        yield ok(what, f"reach all others ({ports}{', ...' if len(wanted) > 4 else ''})")
