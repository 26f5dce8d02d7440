"""`paceline demo`, `paceline probe` and `paceline doctor`, as far as no ranks are run."""

from __future__ import annotations

import io
import json
import resource
import socket
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure
from rich.console import Console

from integration_tests.support import tasks
from integration_tests.unit.collectives.test_collectives import measured
from paceline.errors import UserError
from paceline.horovod import check
from paceline.launch import cli
from paceline.launch.demo import place, report
from paceline.launch.demo.running import Outcome
from paceline.launch.demo.systems import FRAMEWORKS, STOCK, STOCK_LATE, baseline
from paceline.launch.doctor import hosts, installed, limits, mistakes, network
from paceline.launch.doctor.findings import Finding, Severity, error, ok, warning, worst
from paceline.launch.probe import plot
from paceline.launch.probe.buffers import Buffers, Case
from paceline.launch.probe.command import probe_command
from paceline.launch.probe.rank import pairs_of
from paceline.launch.quantities import size_bytes, size_name, sizes_bytes

TORCH, KERAS = FRAMEWORKS
HOROVOD = Outcome(TORCH, STOCK, step_ms=50.0, compute_ms=20.0, accuracy=0.40, equal=True)
PIPELINED = replace(HOROVOD, system=next(one for one in TORCH.systems if one.label == "pipelined"), step_ms=25.0)


def test_faults_conclusion_and_baseline_of_the_demo() -> None:
    assert report.faults([HOROVOD, PIPELINED, replace(HOROVOD, framework=KERAS, accuracy=0.98)]) == []
    [apart] = report.faults([HOROVOD, replace(PIPELINED, equal=False)])
    assert apart == "PyTorch, pipelined: the replicas on the ranks are not equal."
    [less] = report.faults([HOROVOD, replace(PIPELINED, accuracy=0.3)])
    assert less == "PyTorch: the accuracies of its runs differ by 10.0%, expected at most 5%."
    # The conclusion names the fastest run and the next command.
    said = report.conclusion([HOROVOD, PIPELINED], slow=True)
    assert said[0] == "PyTorch: a step with stock Horovod takes 50 ms and waits 30 of them; pipelined, it takes 25 ms."
    assert "paceline record -np 2 python train.py" in said[-1]
    # Runs with a late rank are compared with horovod and a late rank.
    late = [one for one in TORCH.systems if one.late_ms]
    assert len(late) == 2 and {baseline(one) for one in late} == {STOCK_LATE}
    assert {baseline(one) for one in TORCH.systems if not one.late_ms} == {STOCK}


def test_the_loopback_is_slowed_where_the_kernel_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = place.best_place()
    assert found.slow is bool(found.enter)
    tried: list[tuple[str, ...]] = []

    def refuse_users(enter: tuple[str, ...]) -> bool:
        tried.append(enter)
        return "--user" not in enter

    monkeypatch.setattr(place, "_works", refuse_users)
    assert place.best_place().enter == tried[1] and "tbf rate 400000000bit" in " ".join(tried[1])
    monkeypatch.setattr(place, "_works", lambda enter: False)
    plain = place.best_place()
    assert not plain.slow and not plain.enter and "cannot make a network namespace" in plain.description


def test_a_pair_has_what_a_short_message_takes_and_the_rest_of_a_long_one_as_bandwidth() -> None:
    there, back = pairs_of(0, 2, 0.002, 0.042, 1_000_008)
    assert there.latency_s == 0.002 and there.bytes_per_s == pytest.approx(25e6)
    assert (there.sender, there.receiver, back.sender, back.receiver) == (0, 2, 2, 0)
    assert (back.latency_s, back.bytes_per_s) == (there.latency_s, there.bytes_per_s)
    # A long message may seem to take no longer than a short one.
    assert pairs_of(0, 1, 0.004, 0.003, 4096)[0].bytes_per_s > 0


def test_tables_and_the_picture_of_a_probed_network() -> None:
    output = io.StringIO()
    for table in plot.tables(measured()):
        Console(file=output, width=120).print(table)
    text = output.getvalue()
    assert "2000, 25" in text and "10, 1000" in text and "2000 us + 40 ms/MB" in text
    assert "allreduce among 3 ranks" in text and "50 (51)" in text and "1MiB" in text
    # The picture has a map of each.
    figure = plot.figure(measured())
    assert isinstance(figure, Figure)
    left, right = figure.axes[:2]
    assert [left.get_title(loc="left"), right.get_title(loc="left")] == ["latency, us", "bandwidth, MB/s"]
    latency_us, bandwidth = (axes.images[0].get_array() for axes in (left, right))
    assert latency_us is not None and latency_us[0, 2] == pytest.approx(2000)
    assert bandwidth is not None and bandwidth[2, 1] == 25
    assert len(left.texts) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-np", "1"], "cannot be measured on one rank"),
        (["-np", "2", "python", "train.py"], "runs a program of its own, not python"),
        (["-np", "2", "--sizes", "5"], "The size '5' cannot be used"),
        (["-np", "2", "--pair-size", "0"], "The size '0' cannot be used"),
        (["-np", "2", "--pair-size", "8"], "--pair-size 8 cannot be used"),
        (["-np", "2", "-o", "/nowhere/network.json"], "The folder /nowhere of the network file"),
        (["-np", "2", "--plot", "network.odd"], "cannot be drawn"),
        ([], "-np/--num-proc"),
    ],
)
def test_bad_input_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        CliRunner().invoke(probe_command, arguments, catch_exceptions=False)


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "allreduce"])
def test_wrong_results_are_found(operation: str) -> None:
    root, other = Buffers(Case(operation, 64, 2), 0, 3), Buffers(Case(operation, 64), 2, 3)
    assert [array.size for array in root.arrays] == [16, 16]
    for one in (root, other):
        one.fill()
    right = 1 if operation == "broadcast" else 6
    for array in (*root.arrays, *other.arrays):
        array.fill(right)
    root.check()
    other.check()
    root.arrays[1][3] = 2
    with pytest.raises(ValueError, match=f"{operation} of 64 bytes on rank 0: element 3 is 2.0"):
        root.check()
    other.arrays[0][:] = np.inf
    if operation == "reduce":
        other.check()  # only the root has a result
    else:
        with pytest.raises(ValueError, match="on rank 2"):
            other.check()
    # Of a pair only the broadcast has a result on all ranks.
    pair = Buffers(Case("reduce_beside_broadcast", 64), 2, 3)
    pair.arrays[0].fill(9)
    pair.arrays[1].fill(1)
    pair.check()
    pair.arrays[1][0] = 2
    with pytest.raises(ValueError, match=r"on rank 2: element 0 is 2\.0, expected 1\.0"):
        pair.check()
    # A model has a buffer for each tensor.
    assert [array.nbytes for array in Buffers(Case("broadcast", 12, 1, (4, 8)), 0, 2).arrays] == [4, 8]


def test_sizes_are_read() -> None:
    for text, bytes_ in {"4": 4, "4KiB": 4096, "1.5 MiB": 3 << 19, "64MB": 64_000_000}.items():
        assert size_bytes(text) == bytes_ and size_bytes(size_name(bytes_)) == bytes_
    assert sizes_bytes("4,4KiB,4096") == (4, 4096) and (size_name(4096), size_name(100)) == ("4KiB", "100")
    for text in ("6", "4furlong"):
        with pytest.raises(UserError, match=f"The size '{text}' cannot be used"):
            size_bytes(text)


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_variables_that_contradict_and_the_scheduler_are_named() -> None:
    finding = only(mistakes.variables({"HOROVOD_CYCLE_TIMES": "2", "HOROVOD_GPU_OPERATIONS": "NCCL", "HOME": "/"}))
    assert (finding.what, finding.severity) == ("HOROVOD_CYCLE_TIMES", Severity.WARNING)
    assert finding.remedy == "Did you mean HOROVOD_CYCLE_TIME?"
    names = ("HOROVOD_CYCLE_TIME", "HOROVOD_GLOO_IFACE", "HOROVOD_LOG_LEVEL", "HOROVOD_FUSION_THRESHOLD")
    assert only(mistakes.variables(dict.fromkeys(names, "1"))).severity is Severity.OK
    finding = only(mistakes.contradictions({"HOROVOD_AUTOTUNE": "1", "PACELINE_FUSION": "optimal"}))
    assert (finding.what, finding.severity) == ("HOROVOD_AUTOTUNE", Severity.WARNING)
    assert not list(mistakes.contradictions({"HOROVOD_AUTOTUNE": "1"}))
    assert not list(mistakes.contradictions({"HOROVOD_AUTOTUNE": "0", "PACELINE_FUSION": "optimal"}))
    # The scheduler is named.
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


def test_exit_code_and_json_of_the_worst_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.launch.doctor.command.CHECKS", (lambda: network.gloo({"HOROVOD_GLOO_IFACE": "ib9"}),))
    result = run("--json")
    assert result.exit_code == 3
    (reported,) = json.loads(result.stdout)
    assert (reported["what"], reported["severity"]) == ("HOROVOD_GLOO_IFACE", "error")
    assert reported["remedy"]
    shown = run()
    assert shown.exit_code == 3
    assert "errors: 1, warnings: 0" in shown.stdout
    # The worst decides.
    found = [ok("a", "b"), error("a", "b", "c"), warning("a", "b", "c")]
    assert worst(found) is Severity.ERROR
    assert worst(found[::2]) is Severity.WARNING
    assert worst([]) is Severity.OK


def test_every_check_of_this_machine_gives_findings() -> None:
    result = run("--json", HOROVOD_CYCLE_TIMES="2")
    assert result.exit_code in (1, 3)
    reported = {one["what"] for one in json.loads(result.stdout)}
    assert {"Python", "HOROVOD_CYCLE_TIMES", "HOROVOD_GLOO_IFACE", "open files", "/dev/shm", "scheduler"} <= reported


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
