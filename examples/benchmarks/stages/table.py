"""What `python -m examples.benchmarks pipeline` measured, for the eye."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.examples.benchmarks.harness.cells import INTERVAL, begun, figure

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = (
    "micro-batches/s",
    INTERVAL,
    "utilisation",
    "of the schedule",
    "of the bound",
    "passes ms",
    "CPU ms",
    "weight copies",
    "activations",
    "over gpipe",
    "over torch",
)


def as_table(result: dict[str, Any]) -> Table:
    """The result of `report.as_json`: a row for each system."""
    table = begun(_title(result), "schedule", _COLUMNS, _caption(result))
    for name, system in result["systems"].items():
        table.add_row(name, *_cells(result, name, system))
    return table


def _cells(result: dict[str, Any], name: str, system: dict[str, Any]) -> list[str]:
    ratios = result["ratios"]
    return [
        *figure(system["throughput"], ".4g"),
        f"{system['utilisation']['median']:.3f}",
        f"{system['utilisation_model']:.3f}",
        "" if system["bound_share"] is None else f"{system['bound_share']:.3f}",
        f"{system['passes_ms']:.4g}",
        f"{system['cpu_ms_per_microbatch']:.3g}",
        " ".join(map(str, system["weight_copies"])),
        " ".join(map(str, system["activations"])),
        _ratio(ratios.get(f"{name}_over_gpipe")),
        _ratio(ratios.get("ours_over_torch", {}).get(name)),
    ]


def _title(result: dict[str, Any]) -> str:
    sleeps = result["forward_ms"] is not None
    passes = f", {result['forward_ms']:g} + {result['backward_ms']:g} ms" if sleeps else ""
    return (
        f"{result['model']}: {result['stages']} stages, {result['microbatches']} micro-batches{passes}"
        "  (~: interval beyond 5 % of the ratio)"
    )


def _caption(result: dict[str, Any]) -> str:
    said = [f"{name} is left out: {reason}" for name, reason in result["skipped"].items()]
    ratios = result["ratios"]
    if "pipemare_over_1f1b" in ratios:
        said.append(f"pipemare over 1f1b: {_ratio(ratios['pipemare_over_1f1b'])}")
    if "pipedream_over_pipemare" in ratios:
        said.append(f"weight copies, pipedream over pipemare: {ratios['pipedream_over_pipemare']:.3f}")
    return "\n".join(said)


def _ratio(ratio: dict[str, Any] | None) -> str:
    return "" if ratio is None else f"{ratio['median']:.3f}{' ~' if ratio['wide'] else ''}"
