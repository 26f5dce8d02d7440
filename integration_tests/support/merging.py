"""Plans by hand, for tests of merging: without a driver, the test decides about groups and time."""

from __future__ import annotations

import importlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from paceline.fusion.bridge import Bridge, ControlOp, PlanState
from paceline.fusion.control import choose
from paceline.fusion.offer import EXPECTED, encode
from paceline.fusion.parts import with_parts
from paceline.fusion.report import FusionReport, report
from paceline.native.library import loaded
from paceline.record.snapshot import take

# Any nonzero number: all ranks of a test request the same "policy", which no driver knows.
BY_HAND = 4711
# Only a hang takes longer, even on a busy machine.
LIMIT_S = 60.0


class ByHand:
    """Merging in this rank's library under plans of the test. Every rank makes one; the first sends plans."""

    def __init__(self, library: str = "torch", process_set: int = 0) -> None:
        self.library = library
        self.bridge = Bridge(loaded(library))
        self.process_set = process_set
        self._version = 0

    def begin(self) -> None:
        """Request plans; call it on every rank, and `agreed` afterwards."""
        self._version = 0  # plans of one agreement are counted from 1
        self.bridge.want(BY_HAND)

    def start(self) -> ByHand:
        """Call `begin` and `agreed`."""
        self.begin()
        self.agreed()
        return self

    def end(self) -> None:
        """Return to Horovod's own merging, once all ranks are here: the first request ends the plan on all of them.

        The next request for plans starts from there.
        """
        if self.process_set == 0:
            meet(self.library)
        self.bridge.want(0)
        self.wait(lambda: (status := self.bridge.status(self.process_set)) is None or not status.plans)

    def agreed(self) -> None:
        """Wait until all ranks have requested this: plans of an earlier policy may still be in force."""

        def asked() -> bool:
            status = self.bridge.status(self.process_set)
            return status is not None and status.plans and set(self.bridge.agreement(self.process_set)) == {BY_HAND}

        self.wait(asked)

    def state(self) -> PlanState:
        plan = self.bridge.plan(self.process_set)
        assert plan is not None
        return plan

    def names(self, part: str) -> list[str]:
        """Full names of the tensors reduced so far that contain `part`."""
        return [tensor.name for tensor in self.state().tensors if part in tensor.name]

    def send(self, groups: list[list[str]], timeout_s: float = 5.0) -> int:
        """Send a plan to all ranks; tensors in no group are left to Horovod. Returns its version."""
        state = self.state()
        group_of = {name: number for number, (group, _) in enumerate(with_parts(groups)) for name in group}
        parts_of = {name: parts for group, parts in with_parts(groups) for name in group}
        known = {tensor.name for tensor in state.tensors}
        assert set(group_of) <= known, f"never reduced: {sorted(set(group_of) - known)[:3]}"
        self._version = max(self._version, state.version) + 1
        values = encode(
            self._version,
            True,
            timeout_s,
            [-1.0] * len(EXPECTED),
            [group_of.get(tensor.name, -1) for tensor in state.tensors],
            [parts_of.get(tensor.name, 1) for tensor in state.tensors],
        )
        assert self.bridge.ask(self.process_set, ControlOp.PLAN, values) > 0
        return self._version

    def follow(self, groups: list[list[str]], timeout_s: float = 5.0) -> None:
        """Follow a plan on every rank of the process set: the first sends it, and each waits until it is in force.

        Not to be combined with `send`.
        """
        expected = self._version + 1
        status = self.bridge.status(self.process_set)
        assert status is not None
        if status.rank == 0:
            assert self.send(groups, timeout_s) == expected
        self._version = expected
        self.in_force(expected)
        assert self.state().active

    def expired(self) -> int:
        """Number of groups that this rank released incomplete under the current plan."""
        status = self.bridge.status(self.process_set)
        assert status is not None
        return status.expired

    def in_force(self, version: int) -> None:
        self.wait(lambda: self.state().version >= version)

    @staticmethod
    def wait(done: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < end, "waited too long"
            time.sleep(0.002)


class Messages:
    """Messages of one rank's library from now on: the tensors that share each message."""

    def __init__(self, library: str = "torch") -> None:
        self._handle = loaded(library)
        self._handle.horovod_paceline_record_start(1000)

    def steps(self) -> list[list[list[str]]]:
        """Allreduce messages of each step in order, each a list of tensor names."""
        trace = take(self._handle)
        names = [tensor.name for tensor in trace.tensors]
        return [
            [
                [names[tensor] for tensor in collective.tensors]
                for collective in step.collectives
                if collective.kind == "allreduce"
            ]
            for step in trace.steps
        ]

    def size_bytes(self) -> int:
        """Total bytes of all these messages."""
        steps = take(self._handle).steps
        return sum(one.size_bytes for step in steps for one in step.collectives if one.kind == "allreduce")

    def stop(self) -> list[list[list[str]]]:
        """Return `steps` and stop recording."""
        self._handle.horovod_paceline_record_stop()
        return self.steps()


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """Context with these environment variables in this process."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def meet(library: str) -> None:
    """Wait for all ranks."""
    importlib.import_module(f"horovod.{library}").allgather_object(None, name="merging.meet")


def ask_for(library: str, fusion: Any) -> None:
    """Request a policy, as the wrappers' argument `fusion` does, once all ranks are here; "threshold" ends plans.

    The first rank that requests another policy ends the plan of all of them, also of those that still look at it.
    """
    meet(library)
    choose(loaded(library), fusion)


def repeat(
    library: str,
    step: Callable[[int], object],
    done: Callable[[], bool],
    begin: int = 0,
    about: Callable[[], object] = str,
) -> int:
    """Make steps step(begin), step(begin + 1), ... on every rank until `done` holds on the first one.

    Every rank calls `done`. Returns the number of the next step. The first rank decides for all, by its answer or, at
    the limit, its clock. It sends the decision by a broadcast, which is not part of plans: a rank that has it has
    performed all operations that the first rank had performed. `about`: text for the failure.
    """
    hvd = importlib.import_module(f"horovod.{library}")
    end_s = time.monotonic() + LIMIT_S
    for number in itertools.count(begin):
        step(number)
        said = hvd.broadcast_object((done(), time.monotonic() > end_s), 0, name="repeat.done")
        if said[0]:
            return number + 1
        assert not said[1], f"waited too long, {number + 1 - begin} steps: {about()}"
        time.sleep(0.003)
    raise AssertionError


def step_until(library: str, step: Callable[[int], object], state: str = "active", begin: int = 0) -> FusionReport:
    """Make steps on every rank until the first one reports `state`; return this rank's report."""
    repeat(library, step, lambda: report(library).state == state, begin, lambda: report(library))
    return report(library)
