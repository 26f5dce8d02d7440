"""One case of the matrix of concurrent activities."""

from __future__ import annotations

from dataclasses import dataclass

from integration_tests.support.event_table import environment

# Moments of a step at which an activity acts.
BEFORE, GRADIENTS, BACKWARD, AFTER = "before", "gradients", "backward", "after"


@dataclass(frozen=True)
class Case:
    """An activity in a training of `size` ranks under an exchange of the table of events.

    `framework`: "torch" or "keras"; `backend`: of Keras. `seed`: of all random choices.
    """

    activity: str
    exchange: str
    framework: str
    backend: str
    size: int
    seed: int = 1

    def __str__(self) -> str:
        return f"{self.training}, {self.exchange}, {self.size} ranks: {self.activity}"

    @property
    def training(self) -> str:
        """Framework and backend in words."""
        return f"keras on {self.backend}" if self.framework == "keras" else self.framework

    @property
    def library(self) -> str:
        """Horovod's library."""
        return "tensorflow" if self.backend == "tensorflow" else "torch"

    @property
    def label(self) -> str:
        """Prefix of names of operations."""
        return f"beside.{self.activity}.{self.exchange.replace(', ', '_').replace(' ', '_')}.{self.seed}"

    def env(self, dynamic_sets: bool) -> dict[str, str]:
        """Environment of the world."""
        found = environment(self.exchange)
        if dynamic_sets:
            found["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        if self.framework == "keras":
            found["KERAS_BACKEND"] = self.backend
        return found
