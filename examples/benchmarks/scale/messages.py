"""Messages of a rank in Paceline's recorder: time of coordination and of transfer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.record.trace import Step

# Seconds of coordination and of transfer for each message of a step.
StepTimes = tuple[tuple[float, float], ...]


class Recording:
    """Recording of this rank's messages; begun and ended between steps."""

    def __init__(self, steps: int) -> None:
        from paceline.native.library import loaded

        self._library = loaded("torch")
        self._library.horovod_paceline_record_start(steps + 1)

    def end(self) -> tuple[StepTimes, ...]:
        """Return the recorded steps. The last message may be missing: it is recorded after its results are out."""
        from paceline.record.snapshot import steps

        found = tuple(times_s(steps(self._library)))
        self._library.horovod_paceline_record_stop()
        return found


def times_s(steps: Iterable[Step]) -> Iterator[StepTimes]:
    """Yield, for each step, the coordination and transfer seconds of each of its messages, in order.

    Coordination lasts from the submission of the message's last tensor, or from the end of the message before if that
    is later, to the start of the transfer. No other message is in transfer then.
    """
    for step in steps:
        arrived_s = {arrival.tensor: arrival.time_s for arrival in step.arrivals}
        found, free_s = [], 0.0
        for one in sorted(step.collectives, key=lambda one: one.start_s):
            if one.start_s < 0:
                continue  # of an earlier step, recorded late
            ready_s = max((arrived_s[tensor] for tensor in one.tensors if tensor in arrived_s), default=step.start_s)
            found.append((max(0.0, one.start_s - max(ready_s, free_s)), one.end_s - one.start_s))
            free_s = one.end_s
        yield tuple(found)
