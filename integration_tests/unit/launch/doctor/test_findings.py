"""What `paceline doctor` finds wrong, from variables and from a machine made to look out of order; nothing is run."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Iterable
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from integration_tests.support import tasks
from paceline.horovod import check
from paceline.launch import cli
from paceline.launch.doctor import hosts, installed, limits, mistakes, network
from paceline.launch.doctor.findings import Finding, Severity, error, ok, warning, worst


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_the_worst_decides() -> None:
    found = [ok("a", "b"), error("a", "b", "c"), warning("a", "b", "c")]
    assert worst(found) is Severity.ERROR
    assert worst(found[::2]) is Severity.WARNING
    assert worst([]) is Severity.OK


def test_variables_that_horovod_does_not_read_or_that_contradict_a_plan() -> None:
    finding = only(mistakes.variables({"HOROVOD_CYCLE_TIMES": "2", "HOROVOD_GPU_OPERATIONS": "NCCL", "HOME": "/"}))
    assert (finding.what, finding.severity) == ("HOROVOD_CYCLE_TIMES", Severity.WARNING)
    assert finding.remedy == "Did you mean HOROVOD_CYCLE_TIME?"
    names = ("HOROVOD_CYCLE_TIME", "HOROVOD_GLOO_IFACE", "HOROVOD_LOG_LEVEL", "HOROVOD_FUSION_THRESHOLD")
    assert only(mistakes.variables(dict.fromkeys(names, "1"))).severity is Severity.OK
    finding = only(mistakes.contradictions({"HOROVOD_AUTOTUNE": "1", "PACELINE_FUSION": "optimal"}))
    assert (finding.what, finding.severity) == ("HOROVOD_AUTOTUNE", Severity.WARNING)
    assert not list(mistakes.contradictions({"HOROVOD_AUTOTUNE": "1"}))
    assert not list(mistakes.contradictions({"HOROVOD_AUTOTUNE": "0", "PACELINE_FUSION": "optimal"}))


def test_the_scheduler_is_named() -> None:
    assert "Slurm (srun): rank 1 of 4" in only(mistakes.scheduler(tasks.slurm(1, 4))).found
    assert only(mistakes.scheduler({})).severity is Severity.OK
    contradictory = {**tasks.slurm(1, 4), "RANK": "0", "WORLD_SIZE": "1"}
    finding = only(mistakes.scheduler(contradictory))
    assert finding.severity is Severity.ERROR
    assert "--scheduler" in finding.remedy


def test_interfaces_for_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = only(network.gloo({"HOROVOD_GLOO_IFACE": "ib9"}))
    assert finding.severity is Severity.ERROR
    assert "ib9" in finding.found and "lo" in finding.remedy
    assert only(network.gloo({"HOROVOD_GLOO_IFACE": "lo"})).severity is Severity.WARNING
    down = {name: state._replace(isup=False) for name, state in psutil.net_if_stats().items()}
    monkeypatch.setattr(psutil, "net_if_stats", lambda: down)
    finding = only(network.gloo({"HOROVOD_GLOO_IFACE": "lo"}))
    assert finding.severity is Severity.ERROR and "is down" in finding.found


@pytest.mark.parametrize(
    ("address", "severity"), [("127.0.1.1", Severity.WARNING), ("10.1.2.3", Severity.OK)], ids=["loopback", "network"]
)
def test_what_the_hosts_own_name_means(address: str, severity: Severity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda _: address)
    finding = only(network.own_name())
    assert finding.severity is severity and address in finding.found


def test_few_open_files_and_little_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    finding = only(limits.open_files())
    assert finding.severity is Severity.WARNING and "ulimit -n" in finding.remedy
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert only(limits.open_files()).severity is Severity.OK
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("usage", (), {"free": 64 << 20}))
    finding = only(limits.shared_memory())
    assert (finding.severity, finding.found) == (Severity.WARNING, "64 MiB free") and "--shm-size" in finding.remedy


def test_a_horovod_that_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "findings", lambda: [check.Finding("Horovod", "none", "0.28.1", False)])
    monkeypatch.setattr(check, "built_from", lambda: None)
    finding = only(installed.horovod())
    assert finding.severity is Severity.ERROR and "paceline horovod install" in finding.remedy
    assert not installed.is_usable()


def run(*words: str, **environ: str) -> Any:
    return CliRunner().invoke(cli.main, ["doctor", "--no-runs", *words], env=environ)


def test_exit_code_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.launch.doctor.command.CHECKS", (lambda: network.gloo({"HOROVOD_GLOO_IFACE": "ib9"}),))
    result = run("--json")
    assert result.exit_code == 3
    (told,) = json.loads(result.stdout)
    assert (told["what"], told["severity"]) == ("HOROVOD_GLOO_IFACE", "error")
    assert told["remedy"]
    shown = run()
    assert shown.exit_code == 3
    assert "errors: 1, warnings: 0" in shown.stdout


def test_every_check_of_this_machine_gives_findings() -> None:
    result = run("--json", HOROVOD_CYCLE_TIMES="2")
    assert result.exit_code in (1, 3)
    told = {one["what"] for one in json.loads(result.stdout)}
    assert {"Python", "HOROVOD_CYCLE_TIMES", "HOROVOD_GLOO_IFACE", "open files", "/dev/shm", "scheduler"} <= told


class _OtherClock:
    """A host whose clock is `ahead_s` from ours."""

    host = "n1"

    def __init__(self, ahead_s: float) -> None:
        self._ahead_s = ahead_s

    def ask(self, what: Any, limit_s: float) -> float:
        assert what == "time" and limit_s > 0
        return time.time() + self._ahead_s


@pytest.mark.parametrize(("ahead_s", "severity"), [(0.0, Severity.OK), (-90.0, Severity.WARNING)])
def test_clocks_that_differ(ahead_s: float, severity: Severity) -> None:
    assert hosts.names("a:2,b:4,c") == ["a", "b", "c"]
    finding = only(hosts._clock(_OtherClock(ahead_s)))  # type: ignore[arg-type]
    assert finding.severity is severity
    assert "chrony" in finding.remedy or not ahead_s
