"""A comparison as JSON, with what it was measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from paceline.examples.benchmarks.harness.balance import Balance
from paceline.examples.benchmarks.harness.hosts import Traffic
from paceline.examples.benchmarks.harness.stats import Interval
from paceline.examples.benchmarks.harness.team_run import TeamRun
from paceline.examples.benchmarks.harness.turns import Comparison

DIGITS = 4
# What the ranks count themselves; the same in every turn when nothing but the program decides it.
COUNTERS = ("coordination_rounds", "messages", "bytes")

# New network namespaces, emulated hosts among them, take it from here.
_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def machine() -> dict[str, Any]:
    """Processor, kernel, how its TCP controls congestion, versions, and the load average over the last minute (what
    else the machine does).
    """
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "tcp": _CONGESTION.read_text().strip() if _CONGESTION.exists() else None,
        "load_average": round(os.getloadavg()[0], 2),
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in ("paceline", "horovod", "torch")},
        },
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def as_json(
    comparison: Comparison,
    hosts: int,
    rate: str | None,
    machine: dict[str, Any],
    command: str,
    balance: Balance | None = None,
    latency: str | None = None,
) -> dict[str, Any]:
    """One model's result, ready for json.dumps. Times in milliseconds; a figure nobody counts is None.

    `wire_bytes_per_step` are Ethernet bytes of each host's link; `bytes_per_step` are payload as the system counts it.
    Where systems merge by plan, `plans` has the plan of each. If the system that the first ratio is about has a plan
    that foretells its steps, `predicted_over_measured` is among the ratios. `balance` is why the links have this rate,
    if it was not given; `latency` is what the network adds from host to host, one way.
    """
    model = comparison.model
    plans = {name: plan for name in comparison.runs if (plan := _plan(comparison, name)) is not None}
    ratios = {one.name: ratio(comparison.value(one)) for one in comparison.ratios}
    leading = plans.get(comparison.ratios[0].system) if comparison.ratios else None
    if leading is not None and leading["predicted_over_measured"] is not None:
        ratios["predicted_over_measured"] = leading["predicted_over_measured"]
    return {
        "model": model.name,
        "tensors": model.tensors,
        "parameters": model.parameters,
        "forward_ms": None if model.computes else model.forward_ms,
        "backward_ms": None if model.computes else model.backward_ms,
        "hosts": hosts,
        "ranks": comparison.size,
        "rate": rate,
        "latency": latency,
        **({"balance": _balance(balance)} if balance else {}),
        "systems": {name: _system(comparison, name) for name in comparison.runs},
        **({"plans": plans} if plans else {}),
        "ratios": ratios,
        "machine": machine,
        "command": command,
    }


def _balance(balance: Balance) -> dict[str, float | bool]:
    return {
        "communication_share": balance.share,
        "compute_ms": rounded(balance.compute_s * 1e3),
        "link_bytes_per_step": round(balance.link_bytes),
        "clean": balance.clean,
    }


def _system(comparison: Comparison, name: str) -> dict[str, Any]:
    runs = comparison.runs[name]

    def middle(of: Callable[[TeamRun], float]) -> float:
        return rounded(comparison.figure(name, of).median)

    return {
        "step_ms": interval(comparison.figure(name, lambda run: run.step_ms)),
        "cpu_ms_per_step": middle(lambda run: run.cpu_ms),
        "wakeups_per_step": middle(lambda run: run.wakeups),
        **{f"{counter}_per_step": _counted(runs, counter) for counter in COUNTERS},
        "wire_bytes_per_step": link_bytes([run.traffic for run in runs]),
        "turns": len(runs),
        "steps": sum(run.steps for run in runs),
    }


def _plan(comparison: Comparison, name: str) -> dict[str, Any] | None:
    """The last plan of a system that merges by plan, and how well it foretold the steps of all turns."""
    plans = comparison.plans(name)
    if not plans:
        return None
    last = plans[-1]
    foretold = comparison.predicted_over_measured(name)
    return {
        "groups": len(last.group_bytes),
        "group_bytes": list(last.group_bytes),
        "a_ms": rounded(last.a_s * 1e3),
        "b_ms_per_mb": rounded(last.b_s_per_byte * 1e9),
        "coordination_ms": rounded(last.coordination_s * 1e3),
        "predicted_step_ms": _milliseconds(last.step_s),
        "predicted_exposed_ms": _milliseconds(last.exposed_s),
        "predicted_stock_step_ms": _milliseconds(last.stock_step_s),
        "predicted_over_measured": None if foretold is None else ratio(foretold),
        "versions": len({plan.version for plan in plans}),
        "timeouts": last.timeouts,
    }


def _counted(runs: list[TeamRun], counter: str) -> float | None:
    values = [value for run in runs if (value := run.counted(counter)) is not None]
    return rounded(median(values)) if values else None


def link_bytes(turns: Sequence[list[Traffic] | None]) -> dict[str, list[int]] | None:
    """What each host's link carried, median over turns; None where there are no links."""
    traffic = [hosts for hosts in turns if hosts is not None]
    if not traffic:
        return None
    by_host = list(zip(*traffic, strict=True))
    return {
        "sent": [round(median(link.sent_bytes for link in host)) for host in by_host],
        "received": [round(median(link.received_bytes for link in host)) for host in by_host],
    }


def interval(value: Interval) -> dict[str, float]:
    """A figure and how well it is known."""
    return {name: rounded(bound) for name, bound in asdict(value).items() if name != "count"}


def ratio(value: Interval) -> dict[str, float | int | bool]:
    """The same of a ratio, and whether it is to be relied on."""
    return {**interval(value), "turns": value.count, "wide": value.wide}


def rounded(value: float) -> float:
    """A figure as it stands in JSON."""
    return round(value, DIGITS)


def _milliseconds(value_s: float | None) -> float | None:
    return None if value_s is None else rounded(value_s * 1e3)
