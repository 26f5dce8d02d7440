"""Emulated cluster: its public interface."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster import host as hosts_module
from paceline.examples.benchmarks.cluster import lifetime, ssh, tools
from paceline.examples.benchmarks.cluster.errors import ClusterError
from paceline.examples.benchmarks.cluster.guarded import Guarded
from paceline.examples.benchmarks.cluster.latencies import parse_latency
from paceline.examples.benchmarks.cluster.network import HostCounters, Network, hosts_file
from paceline.examples.benchmarks.cluster.rates import parse_rate
from paceline.launch import console

MOST_HOSTS = 250
REAP_TIMEOUT_S = 10.0
# After a command was killed at its time limit, its output ends soon: no process is left to write.
DRAIN_TIMEOUT_S = 10.0

Argv = Sequence[str | os.PathLike[str]]


class Cluster:
    """`hosts` emulated hosts named host0, host1, ... with `slots` slots each, joined by links of `rate`.

        with Cluster(hosts=4, rate="1gbit") as cluster:
            cluster.run(["horovodrun", "-np", "4", "-H", cluster.host_list, sys.executable, "train.py"])

    Everything is removed when the block ends. If this process ends without leaving it, a guardian process cleans up.

    Args:
        hosts: number of hosts, 1 to 250.
        rate: rate of every host's link in each direction, such as "200mbit" or "1gbit"; None for no limit.
        slots: processes per host in `host_list`.
        rates: one rate per host; replaces `rate`.
        latency: one-way delay of every frame from host to host, such as "2ms"; None adds none to the machine's own.

    Attributes:
        names: names of the hosts, which resolve to their addresses in every host (set on entry, as all attributes).
        addresses: their IPv4 addresses.
        host_list: "host0:1,host1:1,...", the argument of `horovodrun -H`.
        tag: prefix of the network namespaces: `ip netns exec <tag>-host0 tcpdump -i eth0`.

    Raises:
        UserError: an argument is unusable, this user is not root, or a system program is missing.
        ClusterError: (a UserError) the kernel refuses a step.
    """

    def __init__(
        self,
        hosts: int,
        rate: str | None = None,
        slots: int = 1,
        rates: Sequence[str | None] | None = None,
        latency: str | None = None,
    ) -> None:
        if not 1 <= hosts <= MOST_HOSTS:
            raise UserError(f"A cluster of {hosts} hosts cannot be made.", f"Ask for 1 to {MOST_HOSTS} hosts.")
        if slots < 1:
            raise UserError(f"Hosts cannot have {slots} slots.", "Ask for at least 1 slot per host.")
        if rates is not None and rate is not None:
            raise UserError(f"Both rate={rate!r} and rates={list(rates)!r} are given.", "Give one of them.")
        if rates is not None and len(rates) != hosts:
            raise UserError(f"{len(rates)} rates are given for {hosts} hosts.", "Give one rate per host.")
        wanted = [rate] * hosts if rates is None else list(rates)
        self._rates_bit_s = [None if text is None else parse_rate(text) for text in wanted]
        self._latency_ns = 0 if latency is None else parse_latency(latency)
        self.names = [f"host{k}" for k in range(hosts)]
        self.host_list = ",".join(f"{name}:{slots}" for name in self.names)
        self.addresses: list[str] = []
        self.tag = ""
        self._owner_pid = 0
        self._guarded: Guarded | None = None
        self._network: Network | None = None
        self._hosts: list[hosts_module.Host] = []
        self._runs = itertools.count()

    def __enter__(self) -> Cluster:
        if self._guarded is not None:
            raise UserError("This cluster is in use already.", "Make another Cluster for a second one.")
        tools.check()
        lifetime.remove_stale()
        self._owner_pid = os.getpid()
        self.tag = lifetime.new_tag()
        self._guarded = Guarded(self.tag)
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def _make(self) -> None:
        state = lifetime.state_dir(self.tag)
        state.mkdir(mode=0o700)
        ssh.make_privilege_separation_dir()
        self._network = Network(self.tag, self.names, self._rates_bit_s, self._latency_ns)
        self.addresses = self._network.addresses
        ssh.write_common_files(state, self.addresses)
        shown = hosts_module.write_common_files(self.tag, state, hosts_file(self.names, self.addresses))
        for k, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
            self._hosts.append(hosts_module.Host(name, address, state, self._network.enter(k), shown))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        # A child forked inside the block must not remove its parent's cluster when it leaves the block.
        if self._guarded is None or os.getpid() != self._owner_pid:
            return
        guarded, self._guarded = self._guarded, None
        hosts, self._hosts = self._hosts, []
        network, self._network = self._network, None
        try:
            trouble = network.stop() if network is not None else None
            if trouble is not None:
                console.note(trouble)
        finally:
            guarded.remove_cluster()
        for host in hosts:
            host.reap(REAP_TIMEOUT_S)

    def _live(self) -> Network:
        if self._guarded is None or self._network is None:
            raise UserError(
                "This cluster does not exist now.", "Use it inside its block: `with Cluster(...) as cluster:`"
            )
        return self._network

    def _index(self, host: int) -> int:
        self._live()
        if not 0 <= host < len(self._hosts):
            raise UserError(f"There is no host {host}.", f"This cluster has the hosts 0 to {len(self._hosts) - 1}.")
        return host

    def command(self, argv: Argv, host: int = 0) -> list[str | os.PathLike[str]]:
        """Return a command that runs `argv` in a host, in the current folder of this process."""
        return self._hosts[self._index(host)].command(argv, str(Path.cwd()))

    def popen(
        self, argv: Argv, host: int = 0, env: Mapping[str, str] | None = None, **popen_kwargs: Any
    ) -> subprocess.Popen[Any]:
        """Start `argv` in a host; `env` is added to this process's environment. Other arguments: subprocess.Popen's.

        The returned process is the command itself, so its pid can be signalled.
        """
        return self._popen(argv, host, env, **popen_kwargs)[0]

    def _popen(
        self, argv: Argv, host: int, env: Mapping[str, str] | None, **kwargs: Any
    ) -> tuple[subprocess.Popen[Any], str]:
        entered = self._hosts[self._index(host)]
        self._live().check()
        mark = f"{self.tag}-{next(self._runs)}"
        environment = {**os.environ, **(env or {}), ssh.RUN_VARIABLE: mark}
        return entered.popen(argv, environment, **kwargs), mark

    def run(
        self,
        argv: Argv,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
        host: int = 0,
        cwd: str | os.PathLike[str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` in a host to its end, with output captured as text; `env` is added to this process's environment.

        Returns the completed process, whatever its exit status. After `timeout_s` it kills the command and all
        processes that it started, on other hosts too, and raises ClusterError with the output so far.
        """
        process, mark = self._popen(
            argv,
            host,
            env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._kill_run(process, mark)
            output, errors = _drain(process)
            raise ClusterError(
                f"`{_shown(argv)}` did not end within {timeout_s:g} s on {self.names[host]}; it was killed.",
                "Give it more time (timeout_s) or see in its output where it stands.",
                output + errors,
            ) from None
        except BaseException:
            self._kill_run(process, mark)
            _drain(process)
            raise
        return subprocess.CompletedProcess(list(argv), process.returncode, output, errors)

    def _kill_run(self, process: subprocess.Popen[Any], mark: str) -> None:
        """Kill a command, its process group, and all processes with its mark on any host."""
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        entry = f"{ssh.RUN_VARIABLE}={mark}".encode()

        def marked(pid: int) -> bool:
            try:
                return entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                return False

        lifetime.kill_in(lifetime.namespaces(self.tag), marked)

    def set_rate(self, host: int, rate: str | None) -> None:
        """Change the rate of a host's link, both directions, while everything runs; None removes the limit."""
        self._live().set_rate(self._index(host), None if rate is None else parse_rate(rate))

    def counters(self) -> list[HostCounters]:
        """Bytes and packets that each host has sent and received, in the order of hosts."""
        return self._live().counters()


def _drain(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the output of a killed process; also collects its status."""
    try:
        return process.communicate(timeout=DRAIN_TIMEOUT_S)
    except subprocess.TimeoutExpired as expired:  # a process without the mark holds the pipe open
        return _text(expired.output), _text(expired.stderr)


def _text(part: str | bytes | None) -> str:
    return part.decode(errors="replace") if isinstance(part, bytes) else part or ""


def _shown(argv: Argv) -> str:
    return " ".join(os.fspath(part) for part in argv)
