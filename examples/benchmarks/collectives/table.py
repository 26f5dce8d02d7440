"""What `python -m examples.benchmarks collectives` measured, for the eye."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paceline.examples.benchmarks.collectives.turns import RIVALS
from paceline.examples.benchmarks.harness.cells import INTERVAL, begun, figure, ranks_on
from paceline.launch.record.plot import size_text

if TYPE_CHECKING:
    from rich.table import Table

_PLAIN = "plain"


def as_table(result: dict[str, Any]) -> Table:
    """The result of `report.as_json`: a row for each system."""
    rivals = [name for name in RIVALS if name in result["systems"]]
    rivals += [_PLAIN] if any("+" in name for name in result["systems"]) else []
    several = next((one["in_flight"]["messages"] for one in result["systems"].values() if "in_flight" in one), 0)
    titles = ["call ms", INTERVAL, "message ms", "bus MB/s", "of wire", "of bound", "CPU ms", "sent MB/host"]
    titles += [f"over {name}" for name in rivals]
    titles += [f"{several} over one"] if several else []
    titles += [f"over {result['p_growth_from']} ranks"] if result["p_growth_from"] else []
    table = begun(_title(result), result["operation"], titles)
    for name, system in result["systems"].items():
        table.add_row(name, *_cells(result, name, system, rivals))
    return table


def _cells(result: dict[str, Any], name: str, system: dict[str, Any], rivals: Sequence[str]) -> list[str]:
    wire = system["wire_bytes_per_call"]
    ratios = [
        result["ratios"].get(f"{name.replace('+', '_')}_over_{rival}_{result['operation']}", {}) for rival in rivals
    ]
    return [
        *figure(system["call_ms"], ".4g"),
        f"{system['message_ms']['median']:.4g}",
        f"{system['bus_bytes_per_s'] / 1e6:.4g}",
        _number(system["wire_share"]),
        _number(system["bound_share"]),
        f"{system['cpu_ms_per_call']:.3g}",
        "" if wire is None else f"{max(wire['sent']) / 1e6:.4g}",
        *(_number(ratio.get("median")) + (" ~" if ratio.get("wide") else "") for ratio in ratios),
        *([_number(system["in_flight"]["over_one"]["median"])] if "in_flight" in system else []),
        *([_number(system["p_growth"])] if result["p_growth_from"] else []),
    ]


def _title(result: dict[str, Any]) -> str:
    return (
        f"{result['operation']} of {size_text(result['size_bytes'])}: {ranks_on(result)}"
        "  (~: interval beyond 5 % of the ratio)"
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
