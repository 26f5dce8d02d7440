"""Report of the demo: the closing table, its conclusion, and faults."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.launch import console
from paceline.launch.demo.running import Outcome
from paceline.launch.demo.systems import baseline

LEAST_GAIN = 0.97  # a larger ratio is not a gain: repeated runs differ as much
MOST_DIFFERENCE = 0.05  # largest difference between the accuracies of one framework's runs


def show_outcomes(outcomes: Sequence[Outcome], place: str) -> None:
    """Print the closing table: a row for each run, with its ratio to stock Horovod's step."""
    from rich.table import Table

    stock = {(one.framework.name, one.system): one.step_ms for one in outcomes}
    table = Table(title=f"Training steps on {place}", title_justify="left")
    for column in ("", "run", "in front of the command"):
        table.add_column(column)
    for column in ("step", "waiting", "of Horovod's\nstep", "accuracy"):
        table.add_column(column, justify="right")
    framework = ""
    for one in outcomes:
        if one.framework.name != framework:
            table.add_section()
        reference_ms = stock.get((one.framework.name, baseline(one.system)))
        table.add_row(
            one.framework.name if one.framework.name != framework else "",
            one.system.label,
            one.system.shown.replace(" ", "\n") or "-",
            f"{one.step_ms:.1f} ms",
            f"{one.exposed_ms:.1f} ms",
            "-" if reference_ms is None else f"{one.step_ms / reference_ms:.2f}",
            f"{one.accuracy:.1%}",
        )
        framework = one.framework.name
    console.out().print(table)


def conclusion(outcomes: Sequence[Outcome], slow: bool) -> list[str]:
    """Sentences with the conclusion for the reader's own job, and the next command."""
    lines = []
    for name in dict.fromkeys(one.framework.name for one in outcomes):
        ours = [one for one in outcomes if one.framework.name == name]
        stock = next((one for one in ours if one.system == baseline(one.system) and not one.system.late_ms), None)
        rivals = [one for one in ours if one.system.variables and not one.system.late_ms]
        if stock is None or not rivals:
            continue
        best = min(rivals, key=lambda one: one.step_ms)
        faster = best.step_ms < LEAST_GAIN * stock.step_ms
        lines.append(
            f"{name}: a step with stock Horovod takes {stock.step_ms:.0f} ms and waits {stock.exposed_ms:.0f} of them; "
            + (f"{best.system.label}, it takes {best.step_ms:.0f} ms." if faster else "nothing here is faster.")
        )
    if slow:
        lines.append(
            "Your steps gain as much if they wait as long as these do, relative to computing. On a network that is not "
            "the bottleneck they gain little."
        )
    lines.append("Next, trace your own script: paceline record -np 2 python train.py, then paceline plan trace.json")
    return lines


def faults(outcomes: Sequence[Outcome]) -> list[str]:
    """Sentences about faults: replicas that differ, accuracies further apart than chance explains."""
    found = [
        f"{one.framework.name}, {one.system.label}: the replicas on the ranks are not equal."
        for one in outcomes
        if not one.equal
    ]
    for name in dict.fromkeys(one.framework.name for one in outcomes):
        accuracies = [one.accuracy for one in outcomes if one.framework.name == name]
        if max(accuracies) - min(accuracies) > MOST_DIFFERENCE:
            found.append(
                f"{name}: the accuracies of its runs differ by {max(accuracies) - min(accuracies):.1%}, "
                f"expected at most {MOST_DIFFERENCE:.0%}."
            )
    return found
