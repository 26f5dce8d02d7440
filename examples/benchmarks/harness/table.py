"""A comparison for the eye."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.examples.benchmarks.harness.cells import INTERVAL, begun, figure, ranks_on
from paceline.examples.benchmarks.harness.ratios import shown

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS = ("time ms", INTERVAL, "CPU ms", "wake-ups", "rounds", "messages", "payload MB", "sent MB/host")


def as_table(result: dict[str, Any]) -> RenderableType:
    """The result of `report.as_json` as a table and lines below it."""
    from rich.console import Group
    from rich.text import Text

    table = begun(_title(result), "per step", COLUMNS)
    for name, system in result["systems"].items():
        step, wire = system["step_ms"], system["wire_bytes_per_step"]
        table.add_row(
            name,
            *figure(step, ".1f"),
            f"{system['cpu_ms_per_step']:.1f}",
            f"{system['wakeups_per_step']:.0f}",
            _number(system["coordination_rounds_per_step"]),
            _number(system["messages_per_step"]),
            _number(system["bytes_per_step"], 1e6, 2),
            _number(max(wire["sent"]) if wire else None, 1e6, 2),
        )
    lines = [_balance_line(result)] if "balance" in result else []
    lines += [_plan_line(name, plan) for name, plan in result.get("plans", {}).items()]
    lines += [_ratio_line(name, ratio) for name, ratio in result["ratios"].items()]
    return Group(table, *map(Text, lines))


def _title(result: dict[str, Any]) -> str:
    if result["backward_ms"] is None:
        compute = "computed on the processor"
    else:
        compute = f"{result['forward_ms']:g} + {result['backward_ms']:g} ms compute"
    return (
        f"{result['model']}: {ranks_on(result)};"
        f" {result['tensors']} tensors, {result['parameters'] / 1e6:.2f} M parameters, {compute}"
    )


def _balance_line(result: dict[str, Any]) -> str:
    balance = result["balance"]
    doubt = "" if balance["clean"] else "; more than this machine's processor may drive: the links may not set the pace"
    return (
        f"{result['rate']} were chosen so that {balance['link_bytes_per_step'] / 1e6:.2f} MB a step and link take"
        f" {balance['communication_share']:g} x the {balance['compute_ms']:.1f} ms of compute{doubt}"
    )


def _ratio_line(name: str, ratio: dict[str, Any]) -> str:
    interval = f"{ratio['median']:.3f}, 95 % in {ratio['low']:.3f} .. {ratio['high']:.3f} ({ratio['turns']} turns)"
    doubt = "; wide: measure longer before relying on it" if ratio["wide"] else ""
    return f"{shown(name)}: {interval}{doubt}"


def _plan_line(name: str, plan: dict[str, Any]) -> str:
    messages = "1 message" if plan["groups"] == 1 else f"{plan['groups']} messages"
    again = plan["versions"] - 1
    anew = f", planned anew {'once' if again == 1 else f'{again} times'}" if again else ""
    late = plan["timeouts"]
    incomplete = f", {late} message{'s' if late > 1 else ''} went incomplete" if late else ""
    predicted = ""
    if plan["predicted_step_ms"] is not None:
        predicted = (
            f"; step predicted {plan['predicted_step_ms']:.1f} ms ({plan['predicted_exposed_ms']:.1f} ms exposed),"
            f" stock {plan['predicted_stock_step_ms']:.1f} ms"
        )
    return (
        f"{name}: {messages} planned at {plan['a_ms']:.2f} ms + {plan['b_ms_per_mb']:.2f} ms/MB each and"
        f" {plan['coordination_ms']:.2f} ms of coordination{predicted}{anew}{incomplete}"
    )


def _number(value: float | None, unit: float = 1, digits: int = 1) -> str:
    return "-" if value is None else f"{value / unit:.{digits}f}"
