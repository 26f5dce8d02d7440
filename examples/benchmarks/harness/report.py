"""Results: as JSON, with the machine on which they were measured, and as tables."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import UserError
from paceline.examples.benchmarks.harness.turns import Comparison, Limits, Log, shown
from paceline.launch.intervals import Interval

if TYPE_CHECKING:
    from rich.console import RenderableType

DIGITS = 6
# New network namespaces, including emulated hosts, inherit it from here.
_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
Result = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A figure or a detail of each system: heading, format and unit."""

    title: str
    figure: str
    form: str = ".1f"
    unit: float = 1.0


@dataclass
class Measured:
    """One comparison and facts about it: `facts` go into the JSON, `notes` are lines below the table.

    `left_out` maps systems that cannot be measured to the reason.
    """

    title: str
    comparison: Comparison
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """A kind of measurement: its settings, its results one after another, and their columns.

    The first column is shown with its interval. `start_s` is the approximate time of a result besides measuring.
    `quick` holds settings that make it short. `missing` returns the reason why settings cannot be measured here, with
    its remedy; None if they can.
    """

    title: str
    settings: type[Any]
    measure: Callable[[Any, Limits, Log], Iterator[Measured]]
    rows: str
    columns: Sequence[Column]
    start_s: float
    quick: Mapping[str, Any] = field(default_factory=dict)
    missing: Callable[[Any], UserError | None] = lambda settings: None


def machine() -> Result:
    """Return processor, kernel, TCP's congestion control, versions, and the load average of the last minute."""
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


def as_json(measured: Measured, about: Result) -> Result:
    """Return a result for json.dumps; None for a figure that a system does not count."""
    comparison = measured.comparison
    return {
        "title": measured.title,
        **measured.facts,
        "systems": {name: _system(comparison, name) for name in comparison.turns},
        "ratios": {one.name: _ratio(comparison.value(one)) for one in comparison.ratios},
        "notes": list(measured.notes),
        "left_out": dict(measured.left_out),
        "machine": about,
    }


def _system(comparison: Comparison, name: str) -> Result:
    turns = comparison.turns[name]
    figures = dict.fromkeys(figure for turn in turns for figure in turn.figures)
    found: Result = {}
    for figure in figures:
        value = comparison.interval(name, figure)
        found[figure] = None if value is None else _interval(value)
    return {**found, **turns[-1].details, "turns": len(turns)}


def _interval(value: Interval) -> Result:
    return {"median": rounded(value.median), "low": rounded(value.low), "high": rounded(value.high)}


def _ratio(value: Interval) -> Result:
    return {**_interval(value), "turns": value.count, "wide": value.wide}


def rounded(value: float) -> float:
    """Return a figure as written to JSON."""
    return round(value, DIGITS)


def as_table(result: Result, rows: str, columns: Sequence[Column]) -> RenderableType:
    """Return a row for each system, and below the rows a line for each ratio and note."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    systems = list(result["systems"].values())
    columns = [column for column in columns if any(system.get(column.figure) is not None for system in systems)]
    repeated = any(system["turns"] > 1 for system in systems)  # one turn has no interval
    table = Table(title=result["title"], title_justify="left")
    table.add_column(rows, no_wrap=True)
    for number, column in enumerate(columns):
        table.add_column(column.title, justify="right")
        if number == 0 and repeated:
            table.add_column("95 % interval", justify="right")
    for name, system in result["systems"].items():
        first, *others = columns
        bounds = system[first.figure]
        interval = f"{bounds['low'] / first.unit:{first.form}} .. {bounds['high'] / first.unit:{first.form}}"
        table.add_row(
            name, _cell(system, first), *([interval] if repeated else []), *(_cell(system, column) for column in others)
        )
    lines = [*result["notes"], *(_line(name, ratio) for name, ratio in result["ratios"].items())]
    lines += [f"{name} is left out: {reason}" for name, reason in result["left_out"].items()]
    return Group(table, *map(Text, lines))


def _cell(system: Result, column: Column) -> str:
    value = system.get(column.figure)
    if value is None:
        return "-"
    if isinstance(value, list):
        return " ".join(map(str, value))
    number = value["median"] if isinstance(value, dict) else value
    return f"{number / column.unit:{column.form}}"


def _line(name: str, ratio: Result) -> str:
    doubt = "; wide: measure longer before relying on it" if ratio["wide"] else ""
    interval = f"95 % in {ratio['low']:.3f} .. {ratio['high']:.3f} ({ratio['turns']} turns)"
    return f"{shown(name)}: {ratio['median']:.3f}, {interval}{doubt}"
