"""What was measured as tables: those of the commands that measured it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from paceline.examples.benchmarks.collectives import table as collectives_table
from paceline.examples.benchmarks.every.kept import Measured
from paceline.examples.benchmarks.every.markdown import lines
from paceline.examples.benchmarks.every.rows import Row
from paceline.examples.benchmarks.harness import codec_table, partial_table, table
from paceline.examples.benchmarks.harness.ratios import shown
from paceline.examples.benchmarks.scale import table as scale_table
from paceline.examples.benchmarks.stages import table as stages_table

if TYPE_CHECKING:
    from rich.console import RenderableType

_STEPS = ("baseline", "fusion", "pipelined")
TABLES: dict[str, Callable[[dict[str, Any]], RenderableType]] = {
    **dict.fromkeys(_STEPS, table.as_table),
    "collectives": collectives_table.as_table,
    "codecs": codec_table.as_table,
    "pipeline": stages_table.as_table,
    "partial": partial_table.as_table,
    "scale": scale_table.as_table,
}
_ROOT = "sudo env PATH=$PATH "
_COLUMNS = 120  # of lines of text in a page
_MESSAGE = "_message"  # of ratios: of messages alone, beside those of calls


def as_markdown(row: Row, measured: Measured) -> Iterator[str]:
    """A row's part of a page, from what is kept of it: title, command, when and where, a table for each result."""
    yield f"#### {row.name}: {row.title}"
    yield from ("", f"    {_ROOT if row.needs_root else ''}{measured.command}", "")
    yield from textwrap.wrap(_when(measured), _COLUMNS, break_on_hyphens=False)
    for result in measured.results:
        yield ""
        yield from lines(TABLES[row.benchmark](result))
        ratios = [] if row.benchmark in _STEPS else list(_ratios(result.get("ratios", {}), result.get("operation", "")))
        if ratios:
            yield from ("", *(f"- {line}" for line in ratios))


def _when(measured: Measured) -> str:
    date, _, clock = measured.begun.partition("T")
    machine = measured.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    loads = [machine["load_average"], *(result["machine"]["load_average"] for result in measured.results[1:])]
    said = f"Measured {date} {clock[:5]} UTC in {measured.took_s:.0f} s; load average before each table"
    said += f" {', '.join(f'{load:g}' for load in loads)}{_turns(measured)}."
    said += " Quick: too short to rely on." if measured.quick else ""
    kernel = ".".join(machine["kernel"].split(".")[:2])
    kernel += f" with TCP's {machine['tcp']}" if machine.get("tcp") else ""
    return f"{said} {machine['cores']} cores of {machine['processor']}, Linux {kernel}, {versions}."


def _turns(measured: Measured) -> str:
    """How many turns systems took, where they take some: "; 5 to 12 turns"."""
    systems = [system for result in measured.results for system in result.get("systems", {}).values()]
    turns = sorted({system["turns"] for system in systems if system and "turns" in system})
    if not turns:
        return ""
    return f"; {turns[0]} turns" if len(turns) == 1 else f"; {turns[0]} to {turns[-1]} turns"


def _ratios(ratios: dict[str, Any], operation: str) -> Iterator[str]:
    """A line for each ratio that has an interval; one of messages goes with that of calls."""
    for name, ratio in ratios.items():
        if isinstance(ratio, dict) and "median" not in ratio:
            yield from _ratios({f"{name}, {inner}": value for inner, value in ratio.items()}, operation)
        elif isinstance(ratio, dict) and not name.endswith(_MESSAGE):
            beside = ratios.get(name + _MESSAGE)
            message = f"; the message alone {_interval(beside)}" if beside else ""
            doubt = "; wide" if ratio["wide"] else ""
            yield f"{shown(name.removesuffix(f'_{operation}'))}: {_interval(ratio)}{message}{doubt}"


def _interval(ratio: dict[str, Any]) -> str:
    return f"{ratio['median']:.3f} ({ratio['low']:.3f} .. {ratio['high']:.3f})"
