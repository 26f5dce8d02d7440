"""From a trace to an iteration: the computation time of recorded steps."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core._core import CostModel
from paceline.fusion.from_trace import WARM_UP_STEPS, Measurements
from paceline.predict.iteration import Iteration
from paceline.record.timed import midmean, timed_steps
from paceline.record.trace import Trace


@dataclass(frozen=True)
class RecordedIteration:
    """An iteration from a trace.

    Attributes:
        step_s: midmean of the time from the start of a step to the start of the next.
        overlaps: messages of a step ended after the next step had begun, so that the whole step is only an upper bound
            of its computation.
    """

    iteration: Iteration
    step_s: float
    overlaps: bool


def of_trace(recorded: Trace, measured: Measurements, costs: CostModel) -> RecordedIteration | None:
    """Return the iteration of a recorded training; None if the trace has no two consecutive steps.

    A trace shows the messages, and the backward pass from the first gradient to the last. The rest of a step is the
    update, loading, the forward pass and the backward pass up to the first gradient; a trace cannot separate them.
    `l_for_s` has their sum and `l_up_s` is 0; predictions only use the sum. `costs` is the cost of one message with its
    coordination.
    """
    steps = [one for rank in recorded.ranks for one in timed_steps(rank)]
    if not steps:
        return None
    first = min(WARM_UP_STEPS, max(one.step.index for one in steps))
    step_s = midmean(one.time_ms for one in steps if one.step.index >= first) / 1e3
    l_back_s = measured.gradients[-1].ready_s
    overlaps = measured.finish_s > step_s
    exposed_s = 0.0 if overlaps else measured.exposed_s
    l_for_s = max(0.0, step_s - exposed_s - l_back_s)
    return RecordedIteration(Iteration(0.0, l_for_s, l_back_s, measured.gradients, costs), step_s, overlaps)
