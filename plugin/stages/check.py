"""Check of stage schedules: they can be followed and train the model. For tests, and for users' own schedules."""

from __future__ import annotations

from paceline.stages import flow
from paceline.stages.flow import ScheduleError
from paceline.stages.instructions import ALL, Instruction, Kind
from paceline.stages.schedule import Schedule


def check(schedule: Schedule, steps: int) -> None:
    """Raise ScheduleError unless the schedule is valid for `steps` steps and a drain.

    Every stage must do each pass of each micro-batch and each update once, in an order that respects data dependencies
    and with weights that exist, and no stage may wait forever.
    """
    for stage in range(schedule.stages):
        walk = _Walk(schedule, stage)
        for step in range(steps):
            for one in schedule.of_step(stage, step):
                walk.take(one, step)
            if schedule.synchronous and walk.updates != step + 1:
                raise ScheduleError(schedule, stage, f"step {step}", "ends before the update of its mini-batch")
        for one in schedule.drain(stage, steps):
            if one.kind is Kind.FORWARD:
                raise ScheduleError(schedule, stage, one, "a drain has no FORWARD")
            walk.take(one, steps)
        walk.end(steps)
    for _ in flow.in_order(schedule, steps):
        pass


class _Walk:
    """Progress of one stage through its instructions."""

    def __init__(self, schedule: Schedule, stage: int) -> None:
        self.schedule = schedule
        self.stage = stage
        self.updates = 0
        self._backwards = 0  # number done, in the order of mini-batches and micro-batches
        self._forwards: set[tuple[int, int]] = set()

    def take(self, one: Instruction, step: int) -> None:
        reason = {Kind.FORWARD: self._forward, Kind.BACKWARD: self._backward, Kind.UPDATE: self._update}[one.kind](
            one, step
        )
        if reason:
            raise ScheduleError(self.schedule, self.stage, one, reason)

    def end(self, steps: int) -> None:
        all_of_them = steps * self.schedule.microbatches
        for name, done, due in (
            ("FORWARD", len(self._forwards), all_of_them),
            ("BACKWARD", self._backwards, all_of_them),
            ("UPDATE", self.updates, steps),
        ):
            if done != due:
                raise ScheduleError(self.schedule, self.stage, "the end", f"{done} times {name}, {due} are due")

    def _forward(self, one: Instruction, step: int) -> str:
        place = (one.minibatch, one.microbatch)
        if not (0 <= one.minibatch <= step and 0 <= one.microbatch < self.schedule.microbatches):
            return f"step {step} does not have that micro-batch"
        if place in self._forwards:
            return "a second time"
        self._forwards.add(place)
        if self.schedule.forward_version(one.minibatch, self.updates) > self.updates:
            return f"needs weights after {one.minibatch - 1} updates, {self.updates} are done"
        return ""

    def _backward(self, one: Instruction, step: int) -> str:
        expected = divmod(self._backwards, self.schedule.microbatches)
        if (one.minibatch, one.microbatch) != expected:
            return f"micro-batch {expected[1]} of mini-batch {expected[0]} is next, for gradients to add up in order"
        if expected not in self._forwards:
            return "before its FORWARD"
        if one.minibatch != self.updates:
            return f"before the UPDATE of mini-batch {self.updates}, whose gradients it would be added to"
        self._backwards += 1
        return ""

    def _update(self, one: Instruction, step: int) -> str:
        if one.microbatch != ALL:
            return "an UPDATE is about a whole mini-batch"
        if one.minibatch != self.updates:
            return f"the UPDATE of mini-batch {self.updates} is next"
        if self._backwards != (one.minibatch + 1) * self.schedule.microbatches:
            return f"after {self._backwards} times BACKWARD"
        self.updates += 1
        return ""
