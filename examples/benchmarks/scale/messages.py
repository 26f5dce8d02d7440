"""What Paceline's recorder saw of a rank's messages: how long each was agreed on, and how long it travelled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.record.trace import Step

# Of a step and each of its messages: seconds of coordination and of travel.
StepTimes = tuple[tuple[float, float], ...]


class Recording:
    """Of this rank, from now on: begun and ended between steps."""

    def __init__(self, steps: int) -> None:
        from paceline.native.library import loaded

        self._library = loaded("torch")
        self._library.horovod_paceline_record_start(steps + 1)

    def end(self) -> tuple[StepTimes, ...]:
        """What was seen. The last message may be missing: it is written down after its results are handed over."""
        from paceline.record.snapshot import steps

        found = tuple(times_s(steps(self._library)))
        self._library.horovod_paceline_record_stop()
        return found


def times_s(steps: Iterable[Step]) -> Iterator[StepTimes]:
    """For each step, and each of its messages in their order: seconds in which it waited to travel and no other did,
    and seconds in which it did.

    It waits from when the last of its tensors was handed in, or from the end of the message before where that is later.
    """
    for step in steps:
        arrived_s = {arrival.tensor: arrival.time_s for arrival in step.arrivals}
        found, free_s = [], 0.0
        for one in sorted(step.collectives, key=lambda one: one.start_s):
            if one.start_s < 0:
                continue  # of a step before, written down late
            ready_s = max((arrived_s[tensor] for tensor in one.tensors if tensor in arrived_s), default=step.start_s)
            found.append((max(0.0, one.start_s - max(ready_s, free_s)), one.end_s - one.start_s))
            free_s = one.end_s
        yield tuple(found)
