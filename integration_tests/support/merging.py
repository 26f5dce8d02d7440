"""Plans by hand, for tests of merging: no driver, the test says what is merged when."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from paceline.attach import loaded
from paceline.fusion.bridge import Bridge, Call, PlanState
from paceline.fusion.driver import EXPECTED, encode

# Any number that is not 0: all ranks of a test ask for the same "policy", and no driver knows it.
BY_HAND = 4711


class ByHand:
    """Merging in this rank's library under plans that the test makes. Every rank makes one; the first sends plans."""

    def __init__(self, library: str = "torch", process_set: int = 0) -> None:
        handle: ctypes.CDLL = loaded(library)
        self.bridge = Bridge(handle)
        self.process_set = process_set
        self._version = 0

    def begin(self) -> None:
        """Ask for plans; call it on every rank, and `agreed` afterwards."""
        self.bridge.want(BY_HAND)

    def end(self) -> None:
        """Back to Horovod's own merging."""
        self.bridge.want(0)

    def agreed(self) -> None:
        """Wait until all ranks have asked."""
        self.wait(lambda: (status := self.bridge.status(self.process_set)) is not None and status.plans)

    def state(self) -> PlanState:
        """The plan that this rank follows."""
        plan = self.bridge.plan(self.process_set)
        assert plan is not None
        return plan

    def names(self, part: str) -> list[str]:
        """The full names of the tensors reduced so far that have `part` in them."""
        return [tensor.name for tensor in self.state().tensors if part in tensor.name]

    def send(self, groups: list[list[str]], patience_s: float = 5.0) -> int:
        """Send a plan to all ranks; tensors in no group are left to Horovod. Returns its version."""
        state = self.state()
        group_of = {name: number for number, group in enumerate(groups) for name in group}
        known = {tensor.name for tensor in state.tensors}
        assert set(group_of) <= known, f"never reduced: {sorted(set(group_of) - known)[:3]}"
        self._version = max(self._version, state.version) + 1
        values = encode(
            self._version,
            True,
            patience_s,
            [-1.0] * len(EXPECTED),
            [group_of.get(tensor.name, -1) for tensor in state.tensors],
        )
        assert self.bridge.ask(self.process_set, Call.PLAN, values) > 0
        return self._version

    def in_force(self, version: int) -> None:
        """Wait until this rank follows the plan of that version."""
        self.wait(lambda: self.state().version >= version)

    @staticmethod
    def wait(done: Callable[[], bool], limit_s: float = 20.0) -> None:
        """Wait until `done`."""
        end = time.monotonic() + limit_s
        while not done():
            assert time.monotonic() < end, "waited too long"
            time.sleep(0.002)
