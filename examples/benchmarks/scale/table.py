"""What `python -m examples.benchmarks scale` measured, for the eye."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.examples.benchmarks.harness.cells import INTERVAL, begun, figure
from paceline.launch.quantities import size_name

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_COLUMNS = (
    "step ms",
    INTERVAL,
    "coordination ms",
    "messages ms",
    "thread CPU ms",
    "CPU ms",
    "rounds",
    "messages",
    "at rest: wake-ups/s",
    "thread's",
    "CPU ms/s",
    "over cached",
)
# Of what is simulated: enough to see how it grows.
_SHOWN_RANKS = (2, 8, 32, 128, 512, 1024, 4096)
_NONE = "-"


def as_table(result: dict[str, Any]) -> RenderableType:
    """The result of `report.as_json` or `report.closing`: a row for each system."""
    return _measured(result) if "ranks" in result else _followed(result)


def _measured(result: dict[str, Any]) -> Table:
    skipped = "\n".join(f"{name} is left out: {reason}" for name, reason in result["skipped"].items())
    title = f"{result['ranks']} ranks on this machine, per step of {_step(result)}"
    table = begun(f"{title}  (~: interval beyond 5 % of the ratio)", "system", _COLUMNS, skipped or None)
    for name, system in result["systems"].items():
        ratio = result["ratios"].get(f"{name}_over_cached")
        table.add_row(
            name,
            *figure(system["step_ms"], ".2f"),
            *(_number(system[one] and system[one]["median"], ".2f") for one in ("coordination_ms", "message_ms")),
            _number(system["background_cpu_ms_per_step"], ".2f"),
            _number(system["cpu_ms_per_step"], ".2f"),
            _number(system["coordination_rounds_per_step"], ".1f"),
            _number(system["messages_per_step"], ".1f"),
            _number(system["rest_wakeups_per_s"], ".0f"),
            _number(system["rest_background_wakeups_per_s"], ".0f"),
            _number(system["rest_cpu_ms_per_s"], ".1f"),
            "" if ratio is None else f"{ratio['median']:.3f}{' ~' if ratio['wide'] else ''}",
        )
    return table


def _followed(result: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    latency = f", {result['latency']} one way beside what loopback takes" if result["latency"] else ""
    title = f"simulated: ms of coordination per step of {_step(result)}, a processor for each rank{latency}"
    columns = ("fixed us", "hop us", "message us", "fit within", *(f"{ranks} ranks" for ranks in _SHOWN_RANKS))
    table = begun(title, "system", columns)
    for name, found in result["systems"].items():
        if found is None:
            table.add_row(name, *[_NONE] * len(columns))
            continue
        constants = (f"{found[one]:.1f}" for one in ("fixed_us", "hop_us", "message_us"))
        shown = (f"{found['simulated_ms'][str(ranks)]:.3g}" for ranks in _SHOWN_RANKS)
        table.add_row(name, *constants, f"{found['fit_error']:.0%}", *shown)
    plans = begun("bytes of a plan of merging", "tensors", ("messages", "sent", "held by a rank"))
    for plan in result["plans"]:
        sizes = (plan["messages"], plan["sent_bytes"], plan["held_bytes"])
        plans.add_row(f"{plan['tensors']:,}", *(f"{size:,}" for size in sizes))
    return Group(table, plans)


def _step(result: dict[str, Any]) -> str:
    return f"{result['tensors']} tensors of {size_name(result['size_bytes'])} bytes in {result['parts']} parts"


def _number(value: float | None, form: str) -> str:
    return _NONE if value is None else f"{value:{form}}"
