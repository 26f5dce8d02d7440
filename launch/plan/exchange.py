"""The part of `paceline plan` about exchanges: what a step takes, synchronous and pipelined, and which is worth it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.core._core import CostModel
    from paceline.fusion.from_trace import Measurements
    from paceline.fusion.planning import Predicted
    from paceline.predict.recommendation import Recommendation
    from paceline.predict.recorded import RecordedIteration
    from paceline.record.trace import Trace

UNKNOWN = "Exchanges are not compared: no recorded step is followed by the next one, so none has a time."
# A prediction of what was measured that is off by more says nothing about what was not.
MOST_ERROR = 0.20
REMEDY = (
    "Record without other merging on a machine that does nothing else, for more steps, and give the recording's "
    "--cycle-time-ms and --threshold-mb; or let training measure by itself: `paceline run --fusion optimal`."
)


@dataclass(frozen=True)
class Exchanges:
    """What the trace tells about a step, and what follows from it."""

    recorded: RecordedIteration
    advice: Recommendation
    withheld: str = ""  # why nothing is recommended
    armed: bool = False  # plans were predicted with armed steps


def compare(
    trace: Trace,
    measured: Measurements,
    predicted: Mapping[str, Predicted],
    costs: CostModel,
    coordination_s: float,
    withheld: str = "",
    armed: bool = False,
) -> Exchanges | None:
    """All exchanges on a recorded step; None where no step could be timed. `predicted` are a plan's, Horovod's own
    merging first; `costs` is one message without coordination. `withheld`: why nothing shall be recommended, if so.
    `armed`: what `predicted` was made with.
    """
    from paceline.predict.recommendation import recommend
    from paceline.predict.recorded import of_trace

    recorded = of_trace(trace, measured, costs.plus(coordination_s))
    if recorded is None:
        return None
    iteration = recorded.iteration
    advice = recommend(iteration, {name: iteration.step_s(one.finish_s) for name, one in predicted.items()})
    return Exchanges(recorded, advice, withheld, armed)


def doubt(measured: Measurements, predicted: Mapping[str, Predicted]) -> str:
    """Why predictions are not to be relied on, if so: that of Horovod's own merging, which comes first, is off what the
    trace has.
    """
    plain, stock = next(iter(predicted.items()))
    error = stock.finish_s / measured.finish_s - 1 if measured.finish_s > 0 else 0.0
    if abs(error) <= MOST_ERROR:
        return ""
    return (
        f"{plain}, Horovod's own merging, is predicted to take {1e3 * stock.finish_s:.3g} ms and took "
        f"{1e3 * measured.finish_s:.3g} ms in the trace ({error:+.0%}), so no prediction can be relied on"
    )


def exchange_table(exchanges: Exchanges, beside_measured: bool) -> Table:
    """A row per exchange, and one for what was measured, which says nothing where costs are not those of the trace."""
    from rich.table import Table

    recorded, advice = exchanges.recorded, exchanges.advice
    compute_s = recorded.iteration.compute_s
    rows = list(_rows(advice))
    stock_s = rows[0][2]
    table = Table(title="Exchanges, predicted step", title_justify="left")
    table.add_column("exchange")
    table.add_column("messages", overflow="fold")
    for column in ("step", "exposed", f"step to {rows[0][1]}'s"):
        table.add_column(column, justify="right")

    def add(exchange: str, messages: str, step_s: float, bold: bool) -> None:
        times = [f"{1e3 * step_s:.2f} ms", f"{1e3 * max(0.0, step_s - compute_s):.2f} ms"]
        ratio = f"{step_s / stock_s:.3f}" if stock_s > 0 else "-"
        table.add_row(exchange, messages, *times, ratio, style="bold" if bold else None)

    for exchange, messages, step_s, recommended in rows:
        add(exchange, messages, step_s, recommended and not exchanges.withheld)
    if beside_measured:
        table.add_section()
        add("measured in the trace", "", recorded.step_s, False)
    return table


def _rows(advice: Recommendation) -> Iterator[tuple[str, str, float, bool]]:
    """Exchange, messages, seconds per step, whether it is recommended."""
    from paceline.predict.iteration import LAYER_WISE, SEQUENTIAL
    from paceline.predict.recommendation import PIPELINED, SYNC, fastest

    plain = next(iter(advice.synchronous_s))
    for policy in dict.fromkeys((plain, fastest(advice.synchronous_s))):
        chosen = (SYNC, policy) == (advice.exchange, advice.policy)
        yield "synchronous", policy, advice.synchronous_s[policy], chosen
    for policy, name in ((LAYER_WISE, "layer-wise"), (SEQUENTIAL, "sequential")):
        chosen = (PIPELINED, policy) == (advice.exchange, advice.policy)
        yield "pipelined, K = 2", f"{policy} ({name})", advice.pipelined_s[policy], chosen


def texts(exchanges: Exchanges) -> list[str]:
    """What was taken for computation, and the recommendation."""
    from paceline.predict.iteration import SEQUENTIAL
    from paceline.predict.recommendation import PIPELINED, SYNC
    from paceline.registry.policies import THRESHOLD

    if exchanges.withheld:
        return [_assumed(exchanges.recorded), f"Nothing is recommended: {exchanges.withheld}. {REMEDY}"]
    advice = exchanges.advice
    flags = " --exchange pipelined" if advice.exchange == PIPELINED else ""
    flags += f" --fusion {advice.policy}" if advice.policy != THRESHOLD else ""
    several = advice.exchange == SYNC and advice.policy not in (THRESHOLD, SEQUENTIAL)
    flags += " --armed" if exchanges.armed and several else ""
    what = f"`paceline run{flags}`" if flags else "Horovod's own synchronous exchange"
    return [_assumed(exchanges.recorded), f"Recommended: {what}; {advice.reason}."]


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


def as_values(exchanges: Exchanges | None) -> dict[str, Any] | None:
    """Everything as JSON values; times in seconds."""
    if exchanges is None:
        return None
    recorded, advice = exchanges.recorded, exchanges.advice
    return {
        "step_s": recorded.step_s,
        "compute_s": recorded.iteration.compute_s,
        "overlaps": recorded.overlaps,
        "synchronous_s": advice.synchronous_s,
        "pipelined_s": advice.pipelined_s,
        "communication_s": advice.communication_s,
        "recommended": None
        if exchanges.withheld
        else {
            "exchange": advice.exchange,
            "policy": advice.policy,
            "step_s": advice.step_s,
            "reason": advice.reason,
        },
        "withheld": exchanges.withheld,
    }
