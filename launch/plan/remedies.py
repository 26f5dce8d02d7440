"""Part of `paceline plan` that compares all remedies on a recorded step and recommends one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.core._core import CostModel
    from paceline.fusion.from_trace import Measurements
    from paceline.fusion.planning import Predicted
    from paceline.predict.recorded import RecordedIteration
    from paceline.predict.remedies import FinishOf, Remedy
    from paceline.record.trace import Trace

HOROVODS = "Horovod's own"
UNKNOWN = "Remedies are not compared: no recorded step is followed by the next one, so none has a time."
# If the model mispredicts the measured step by more than this, its other predictions are not to be trusted.
MOST_ERROR = 0.20
RECORD_AGAIN = (
    "Record without other merging on a machine that does nothing else, for more steps, and give the recording's "
    "--cycle-time-ms and --threshold-mb; or let training measure by itself: `paceline run --fusion optimal`."
)


@dataclass(frozen=True)
class Compared:
    """Remedies on a recorded step, Horovod's own first; `doubt`: reason for no recommendation, or ""."""

    recorded: RecordedIteration
    found: Sequence[Remedy]
    doubt: str

    @property
    def best(self) -> Remedy | None:
        """Remedy to switch on; None if none is recommended."""
        from paceline.predict.remedies import best

        return None if self.doubt else best(self.found)


def compare(
    trace: Trace,
    measured: Measurements,
    costs: CostModel,
    coordination_s: float,
    ranks: int,
    finish_of: FinishOf,
    doubt: str = "",
    armed: bool = False,
) -> Compared | None:
    """Predict all remedies among `ranks` ranks; None if no step has a time.

    `costs`: of one message without coordination. `doubt`: reason for no recommendation, or "". `armed`: plans may use
    armed steps.
    """
    from paceline.predict.recorded import of_trace
    from paceline.predict.remedies import by_pace, remedies, waits_for_others_s

    recorded = of_trace(trace, measured, costs.plus(coordination_s))
    if recorded is None:
        return None
    late_s = waits_for_others_s(trace)
    found = by_pace(remedies(recorded.iteration, ranks, costs, finish_of, late_s, armed))
    return Compared(recorded, found, doubt)


def doubt(measured: Measurements, predicted: Mapping[str, Predicted]) -> str:
    """Return why predictions are not reliable, "" if they are.

    The prediction of Horovod's own merging, which comes first, is compared with the trace.
    """
    plain, stock = next(iter(predicted.items()))
    error = stock.finish_s / measured.finish_s - 1 if measured.finish_s > 0 else 0.0
    if abs(error) <= MOST_ERROR:
        return ""
    return (
        f"{plain}, Horovod's own merging, is predicted to take {1e3 * stock.finish_s:.3g} ms and took "
        f"{1e3 * measured.finish_s:.3g} ms in the trace ({error:+.0%}), so no prediction can be relied on"
    )


def remedies_table(compared: Compared, own_costs: bool) -> Table:
    """Return a table with a row per remedy, and the trace's step if costs are the trace's own (`own_costs`)."""
    from rich.table import Table

    table = Table(title="Remedies, predicted", title_justify="left")
    table.add_column("paceline run", overflow="fold")
    for column in ("step", "exposed", "speed"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("what it changes", overflow="fold")
    compute_s = compared.recorded.iteration.compute_s

    def add(name: str, step_s: float, speed: str, price: str, bold: bool = False) -> None:
        times = [f"{1e3 * step_s:.2f} ms", f"{1e3 * max(0.0, step_s - compute_s):.2f} ms"]
        table.add_row(name, *times, speed, price, style="bold" if bold else None)

    stock = compared.found[0]
    for one in compared.found:
        speed = f"{one.pace / stock.pace:.2f}"
        add(one.flags or HOROVODS, one.step_s, speed, one.price or "nothing", one is compared.best)
    if own_costs:
        table.add_section()
        add("measured in the trace", compared.recorded.step_s, "", "")
    return table


def texts(compared: Compared) -> list[str]:
    """Return the assumed computation, and the recommendation."""
    chosen = compared.best
    if chosen is None:
        return [_assumed(compared.recorded), f"Nothing is recommended: {compared.doubt}. {RECORD_AGAIN}"]
    return [_assumed(compared.recorded), f"Recommended: {_advice(compared.found, chosen)} {_share(compared)}"]


def _advice(found: Sequence[Remedy], chosen: Remedy) -> str:
    from paceline.predict.remedies import best

    stock = found[0]
    free = best([one for one in found if not one.price])
    if chosen is stock:
        return "Horovod's own synchronous exchange: no remedy is worth its price."
    said = f"`paceline run {chosen.flags}`, {chosen.pace / stock.pace:.2f} times the speed of Horovod's own"
    if not chosen.price:
        return f"{said}, with the same results."
    said += f"; {chosen.price}."
    if free is stock:
        return f"{said} Nothing that leaves results as they are brings as much as 1 %."
    return f"{said} With results as they are: `paceline run {free.flags}`, {free.pace / stock.pace:.2f} times."


def _share(compared: Compared) -> str:
    from paceline.predict.iteration import communication_s

    iteration = compared.recorded.iteration
    all_s = communication_s(iteration)
    if iteration.compute_s <= 0:
        return f"Communication takes {1e3 * all_s:.3g} ms, computation nothing."
    return f"Communication takes {all_s / iteration.compute_s:.3g} times as long as computation."


def _assumed(recorded: RecordedIteration) -> str:
    iteration = recorded.iteration
    step_ms, compute_ms = 1e3 * recorded.step_s, 1e3 * iteration.compute_s
    if recorded.overlaps:
        return (
            f"Computation: at most {compute_ms:.2f} ms. The messages of a recorded step end after the next step has "
            "begun, as those of a pipelined exchange do; a trace of synchronous training tells more."
        )
    return (
        f"Computation: {compute_ms:.2f} ms of the recorded step of {step_ms:.2f} ms, all but the time from the last "
        f"gradient to the end of the last message. {1e3 * iteration.l_for_s:.2f} ms of it lie outside of what a trace "
        "shows: update, loading, forward pass and whatever else a step does; they are assumed to stay as they are."
    )


def as_values(compared: Compared | None) -> dict[str, Any] | None:
    """Return everything as JSON values; times in seconds."""
    from paceline.predict.iteration import communication_s

    if compared is None:
        return None
    recorded, chosen = compared.recorded, compared.best
    return {
        "step_s": recorded.step_s,
        "compute_s": recorded.iteration.compute_s,
        "communication_s": communication_s(recorded.iteration),
        "overlaps": recorded.overlaps,
        "predicted": [
            {"flags": one.flags, "step_s": one.step_s, "ranks": one.ranks, "price": one.price} for one in compared.found
        ],
        "recommended": None if chosen is None else chosen.flags,
        "withheld": compared.doubt,
    }
