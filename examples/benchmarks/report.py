"""A comparison as JSON and as tables, with what it was measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from paceline.benchmarks.stats import Interval
from paceline.benchmarks.team import TeamRun
from paceline.benchmarks.turns import Comparison

if TYPE_CHECKING:
    from rich.console import RenderableType

DIGITS = 4
# What the ranks count themselves; the same in every turn when nothing but the program decides it.
COUNTERS = ("coordination_rounds", "messages", "bytes")
COLUMNS = ("time ms", "95 % interval", "CPU ms", "wake-ups", "rounds", "messages", "payload MB", "sent MB/host")


def machine() -> dict[str, Any]:
    """Processor, kernel, versions, and the load average over the last minute (what else the machine does)."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
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
    comparison: Comparison, hosts: int, rate: str | None, machine: dict[str, Any], command: str
) -> dict[str, Any]:
    """One model's result, ready for json.dumps. Times in milliseconds; a figure nobody counts is None.

    `wire_bytes_per_step` are Ethernet bytes of each host's link; `bytes_per_step` are payload as the system counts it.
    Where systems merge by plan, `plans` has the plan of each, and `predicted_over_measured` among the ratios is that of
    the system that the first ratio is about.
    """
    model = comparison.model
    plans = {name: plan for name in comparison.runs if (plan := _plan(comparison, name)) is not None}
    ratios = {f"{a}_over_{b}": _ratio(comparison.ratio(a, b)) for a, b in comparison.pairs}
    if plans:
        leading = comparison.pairs[0][0]
        ratios["predicted_over_measured"] = plans[leading]["predicted_over_measured"]
    return {
        "model": model.name,
        "tensors": model.tensors,
        "parameters": model.parameters,
        "forward_ms": model.forward_ms,
        "backward_ms": model.backward_ms,
        "hosts": hosts,
        "ranks": comparison.size,
        "rate": rate,
        "systems": {name: _system(comparison, name) for name in comparison.runs},
        **({"plans": plans} if plans else {}),
        "ratios": ratios,
        "machine": machine,
        "command": command,
    }


def _system(comparison: Comparison, name: str) -> dict[str, Any]:
    runs = comparison.runs[name]

    def middle(of: Callable[[TeamRun], float]) -> float:
        return _rounded(comparison.figure(name, of).median)

    return {
        "step_ms": _interval(comparison.figure(name, lambda run: run.step_ms)),
        "cpu_ms_per_step": middle(lambda run: run.cpu_ms),
        "wakeups_per_step": middle(lambda run: run.wakeups),
        **{f"{counter}_per_step": _counted(runs, counter) for counter in COUNTERS},
        "wire_bytes_per_step": _wire(runs),
        "turns": len(runs),
        "steps": sum(run.steps for run in runs),
    }


def _plan(comparison: Comparison, name: str) -> dict[str, Any] | None:
    """The last plan of a system that merges by plan, and how well it foretold the steps of all turns."""
    plans = comparison.plans(name)
    if not plans:
        return None
    last = plans[-1]
    return {
        "groups": len(last.group_bytes),
        "group_bytes": list(last.group_bytes),
        "a_ms": _rounded(last.a_s * 1e3),
        "b_ms_per_mb": _rounded(last.b_s_per_byte * 1e9),
        "coordination_ms": _rounded(last.coordination_s * 1e3),
        "predicted_step_ms": _rounded(last.step_s * 1e3),
        "predicted_exposed_ms": _rounded(last.exposed_s * 1e3),
        "predicted_stock_step_ms": _rounded(last.stock_step_s * 1e3),
        "predicted_over_measured": _ratio(comparison.predicted_over_measured(name)),
        "versions": len({plan.version for plan in plans}),
        "timeouts": last.timeouts,
    }


def _counted(runs: list[TeamRun], counter: str) -> float | None:
    values = [value for run in runs if (value := run.counted(counter)) is not None]
    return _rounded(median(values)) if values else None


def _wire(runs: list[TeamRun]) -> dict[str, list[int]] | None:
    traffic = [run.traffic for run in runs if run.traffic is not None]
    if not traffic:
        return None
    by_host = list(zip(*traffic, strict=True))
    return {
        "sent": [round(median(link.sent_bytes for link in host)) for host in by_host],
        "received": [round(median(link.received_bytes for link in host)) for host in by_host],
    }


def _interval(interval: Interval) -> dict[str, float]:
    return {name: _rounded(value) for name, value in asdict(interval).items() if name != "count"}


def _ratio(interval: Interval) -> dict[str, float | int | bool]:
    return {**_interval(interval), "turns": interval.count, "wide": interval.wide}


def _rounded(value: float) -> float:
    return round(value, DIGITS)


def as_table(result: dict[str, Any]) -> RenderableType:
    """The result of `as_json` for the eye."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    where = f"{result['hosts']} host" + ("s" if result["hosts"] > 1 else "")
    rate = f", {result['rate']}" if result["rate"] else ""
    table = Table(
        title=f"{result['model']}: {result['ranks']} ranks on {where}{rate};"
        f" {result['tensors']} tensors, {result['parameters'] / 1e6:.2f} M parameters,"
        f" {result['forward_ms']:g} + {result['backward_ms']:g} ms compute",
        title_justify="left",
    )
    table.add_column("per step")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for name, system in result["systems"].items():
        step, wire = system["step_ms"], system["wire_bytes_per_step"]
        table.add_row(
            name,
            f"{step['median']:.1f}",
            f"{step['low']:.1f} .. {step['high']:.1f}",
            f"{system['cpu_ms_per_step']:.1f}",
            f"{system['wakeups_per_step']:.0f}",
            _shown(system["coordination_rounds_per_step"]),
            _shown(system["messages_per_step"]),
            _shown(system["bytes_per_step"], 1e6, 2),
            _shown(max(wire["sent"]) if wire else None, 1e6, 2),
        )
    lines = [Text(_plan_line(name, plan)) for name, plan in result.get("plans", {}).items()]
    for name, ratio in result["ratios"].items():
        interval = f"{ratio['median']:.3f}, 95 % in {ratio['low']:.3f} .. {ratio['high']:.3f} ({ratio['turns']} turns)"
        doubt = "; wide: measure longer before relying on it" if ratio["wide"] else ""
        lines.append(Text(f"{name.replace('_over_', ' / ')}: {interval}{doubt}"))
    return Group(table, *lines)


def _plan_line(name: str, plan: dict[str, Any]) -> str:
    messages = "1 message" if plan["groups"] == 1 else f"{plan['groups']} messages"
    again = plan["versions"] - 1
    anew = f", planned anew {'once' if again == 1 else f'{again} times'}" if again else ""
    late = plan["timeouts"]
    incomplete = f", {late} message{'s' if late > 1 else ''} went incomplete" if late else ""
    return (
        f"{name}: {messages} planned at {plan['a_ms']:.2f} ms + {plan['b_ms_per_mb']:.2f} ms/MB each and"
        f" {plan['coordination_ms']:.2f} ms of coordination; step predicted {plan['predicted_step_ms']:.1f} ms"
        f" ({plan['predicted_exposed_ms']:.1f} ms exposed), stock {plan['predicted_stock_step_ms']:.1f} ms"
        f"{anew}{incomplete}"
    )


def _shown(value: float | None, unit: float = 1, digits: int = 1) -> str:
    return "-" if value is None else f"{value / unit:.{digits}f}"
