"""What `python -m examples.benchmarks partial` measured, for the eye."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.examples.benchmarks.harness.cells import begun

if TYPE_CHECKING:
    from rich.table import Table


def as_table(result: dict[str, Any]) -> Table:
    """A result of either part."""
    return _micro(result) if result["part"] == "micro" else _training(result)


def _micro(result: dict[str, Any]) -> Table:
    """The result of `skew_report.as_json`."""
    lateness = result["lateness_ms"]
    table = begun(
        f"{result['size_bytes']} bytes: {result['ranks']} ranks, rank r comes r x {result['skew_ms']:g} ms late;"
        f" {result['iterations']} iterations; sleeps ended {lateness['mean']:.2f} ms late",
        "system",
        ("even ms", "skewed ms", "in time", "model", "wait / skew", "model", "at in time", "over sync"),
    )
    for name, system in result["systems"].items():
        latency, fresh, wait = system["latency_ms"], system["fresh"], system["wait_over_skew"]
        table.add_row(
            name,
            f"{latency['even']['mean']:.2f}",
            f"{latency['skewed']['mean']:.2f}",
            _with_sd(fresh, 1),
            f"{fresh['model']:.1f}",
            f"{wait['mean']:.2f} ± {wait['error']:.2f}",
            f"{wait['model']:.2f}",
            f"{wait['model_at_fresh']:.2f}",
            _ratio(result, name),
        )
    return table


def _training(result: dict[str, Any]) -> Table:
    """One result of `uneven_report.as_json`."""
    table = begun(
        f"Training, delays of the case {result['case']}: {result['ranks']} ranks",
        "system",
        ("steps/s", "accuracy", "loss", "apart", "seeds", "time over sync"),
    )
    for name, system in result["systems"].items():
        table.add_row(
            name,
            _with_sd(system["steps_per_s"], 2),
            _with_sd(system["accuracy"], 4),
            _with_sd(system["loss"], 4),
            _with_sd(system["apart"], 4),
            str(system["seeds"]),
            _ratio(result, name),
        )
    return table


def _with_sd(figure: dict[str, float], digits: int) -> str:
    return f"{figure['mean']:.{digits}f} (sd {figure['sd']:.{digits}f})"


def _ratio(result: dict[str, Any], system: str) -> str:
    ratio = result.get(f"{system}_over_sync")
    return "" if ratio is None else f"{ratio:.2f}"
