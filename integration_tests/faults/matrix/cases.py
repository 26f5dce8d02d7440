"""One case of the matrix: a fault, and the job in which it happens."""

from __future__ import annotations

from dataclasses import dataclass

from integration_tests.faults.matrix.sentences import Action, Fault, Moment

# Limit of a message without progress (HOROVOD_GLOO_TIMEOUT_SECONDS) in jobs of which a rank stops.
STOPPED_LIMIT_S = 4
# In all other jobs: an error that comes only after it is an error that nobody sent.
GLOO_LIMIT_S = 30
# A rank that stops answers no question; the ranks that ask wait this long for it (core/failure/liveness_check.h).
ANSWER_LIMIT_S = 3
# Shorter: `paceline rank` ends a rank 10 to 15 s after it has lost rank 0 (launch/rank/channel.py).
CUT_LIMIT_S = 5
SLOW_LIMIT_S = 8
# Gloo waits this many times its limit for a connection.
CONNECT_FACTOR = 5
# Longer than any wait between two gradients, shorter than STOPPED_LIMIT_S.
PAUSE_S = 1.0
STEPS = 9
# A complete checkpoint is written after this step, before any fault.
FIRST_SAVED = 1


@dataclass(frozen=True)
class Case:
    """A fault in a job of `size` ranks with this exchange, of PyTorch ("torch") or Keras ("keras").

    `backend`: of Keras. `large`: a gradient of 8 MB is among those of a step. `worlds_before`: the ranks have trained
    so often in this process before, each time between init() and shutdown().
    """

    fault: Fault
    exchange: str
    framework: str
    backend: str
    size: int
    worlds_before: int = 0

    def __str__(self) -> str:
        on = f" on {self.backend}" if self.framework == "keras" else ""
        again = f", world {self.worlds_before + 1}" if self.worlds_before else ""
        return f"{self.framework}{on}, {self.exchange}, {self.size} ranks{again}: {self.fault}"

    @property
    def large(self) -> bool:
        return self.fault.moment is Moment.MESSAGE

    @property
    def gloo_limit_s(self) -> int:
        """Value of HOROVOD_GLOO_TIMEOUT_SECONDS."""
        if self.fault.action in (Action.CUT, Action.SLOW):
            return CUT_LIMIT_S if self.fault.action is Action.CUT else SLOW_LIMIT_S
        waits = self.fault.action in (Action.STOP, Action.PAUSE) or self.fault.moment is Moment.INIT
        return STOPPED_LIMIT_S if waits else GLOO_LIMIT_S

    @property
    def limit_s(self) -> float:
        """Seconds from the fault within which every survivor must have its error."""
        if self.fault.moment is Moment.INIT:  # a rank that never comes is as one that comes late
            return CONNECT_FACTOR * STOPPED_LIMIT_S
        if self.fault.action is Action.STOP:
            return STOPPED_LIMIT_S + ANSWER_LIMIT_S
        return 2.0 * CUT_LIMIT_S if self.fault.action is Action.CUT else 1.0

    @property
    def armed(self) -> bool:
        return self.exchange == "armed"

    @property
    def planned(self) -> bool:
        """True if the job follows plans that the test makes."""
        return self.armed or self.fault.moment is Moment.PLAN
