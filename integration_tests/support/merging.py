"""Plans by hand, for tests of merging: no driver, the test says what is merged when."""

from __future__ import annotations

import ctypes
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

# Any number that is not 0: all ranks of a test ask for the same "policy", and no driver knows it.
BY_HAND = 4711
# Only a hang takes longer, however busy the machine is.
LIMIT_S = 60.0


class ByHand:
    """Merging in this rank's library under plans that the test makes. Every rank makes one; the first sends plans."""

    def __init__(self, library: str = "torch", process_set: int = 0) -> None:
        handle: ctypes.CDLL = loaded(library)
        self.bridge = Bridge(handle)
        self.process_set = process_set
        self._version = 0

    def begin(self) -> None:
        """Ask for plans; call it on every rank, and `agreed` afterwards."""
        self._version = 0  # plans of one agreement are counted from 1
        self.bridge.want(BY_HAND)

    def start(self) -> ByHand:
        """`begin`, and `agreed`."""
        self.begin()
        self.agreed()
        return self

    def end(self) -> None:
        """Back to Horovod's own merging; whoever asks for plans next starts from there."""
        self.bridge.want(0)
        self.wait(lambda: (status := self.bridge.status(self.process_set)) is None or not status.plans)

    def agreed(self) -> None:
        """Wait until all ranks have asked for this: plans of a policy before may still be in force."""

        def asked() -> bool:
            status = self.bridge.status(self.process_set)
            return status is not None and status.plans and set(self.bridge.agreement(self.process_set)) == {BY_HAND}

        self.wait(asked)

    def state(self) -> PlanState:
        plan = self.bridge.plan(self.process_set)
        assert plan is not None
        return plan

    def names(self, part: str) -> list[str]:
        """The full names of the tensors reduced so far that have `part` in them."""
        return [tensor.name for tensor in self.state().tensors if part in tensor.name]

    def send(self, groups: list[list[str]], patience_s: float = 5.0) -> int:
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
            patience_s,
            [-1.0] * len(EXPECTED),
            [group_of.get(tensor.name, -1) for tensor in state.tensors],
            [parts_of.get(tensor.name, 1) for tensor in state.tensors],
        )
        assert self.bridge.ask(self.process_set, ControlOp.PLAN, values) > 0
        return self._version

    def follow(self, groups: list[list[str]], patience_s: float = 5.0) -> None:
        """ControlOp it on every rank of the process set: the first sends the plan, and each waits until it follows it.

        Not to be mixed with `send`.
        """
        expected = self._version + 1
        status = self.bridge.status(self.process_set)
        assert status is not None
        if status.rank == 0:
            assert self.send(groups, patience_s) == expected
        self._version = expected
        self.in_force(expected)
        assert self.state().active

    def expired(self) -> int:
        """How many groups this rank let go incomplete under the present plan."""
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
    """What one rank's library performs from here on: which tensors share a message."""

    def __init__(self, library: str = "torch") -> None:
        self._handle = loaded(library)
        self._handle.horovod_paceline_record_start(1000)

    def steps(self) -> list[list[list[str]]]:
        """Per step the messages in their order, each the names of its tensors; those of no allreduce are left out."""
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
        """Of all these messages together."""
        steps = take(self._handle).steps
        return sum(one.size_bytes for step in steps for one in step.collectives if one.kind == "allreduce")

    def stop(self) -> list[list[list[str]]]:
        """`steps`, and no more is recorded."""
        self._handle.horovod_paceline_record_stop()
        return self.steps()


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """These environment variables in this process, for the time being."""
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


def ask_for(library: str, fusion: Any) -> None:
    """Ask for a policy on this rank, as the wrappers' argument `fusion` does; "threshold" ends merging by plan."""
    choose(loaded(library), fusion)


def repeat(
    library: str,
    step: Callable[[int], object],
    done: Callable[[], bool],
    begin: int = 0,
    about: Callable[[], object] = str,
) -> int:
    """Make steps step(begin), step(begin + 1), ... on every rank until `done` holds on the first one.

    Every rank calls `done`. Returns the number of the next step. The first rank's answer, and its clock if that never
    comes, decide for all: a broadcast tells it, which is no part of plans; who is told has performed everything that
    the first rank had performed. `about`: what the failure is to show.
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
