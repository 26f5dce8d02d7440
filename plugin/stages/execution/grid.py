"""Grid of pipelines: every stage has replicas, one in each pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.errors import UsageError
from paceline.stages.execution.posting import Communicator


class Grid:
    """`ranks` ranks as `replicas` pipelines of `stages` stages: rank = stage * replicas + replica.

    The replicas of a stage exchange all its gradients. They therefore have neighbouring ranks, and share a host if
    possible. Raises UsageError for a number of replicas that does not divide the ranks.
    """

    def __init__(self, ranks: int, replicas: int) -> None:
        if ranks % replicas:
            fit = ", ".join(str(one) for one in range(1, ranks + 1) if ranks % one == 0)
            raise UsageError(
                f"replicas={replicas} was given with {ranks} ranks: expected as many replicas of every stage.",
                f"Use one of {fit}, or start a multiple of {replicas} ranks.",
            )
        self.stages, self.replicas = ranks // replicas, replicas

    def place(self, rank: int) -> tuple[int, int]:
        """Return stage and replica of a rank."""
        return divmod(rank, self.replicas)

    def pipeline(self, replica: int) -> list[int]:
        """Return the ranks of one pipeline, by stage."""
        return [stage * self.replicas + replica for stage in range(self.stages)]

    def replicas_of(self, stage: int) -> list[int]:
        """Return the ranks that have this stage."""
        return [stage * self.replicas + replica for replica in range(self.replicas)]


class PipelineCommunicator:
    """Messages within one of several pipelines: `rank` and peers are its stages.

    `ranks`: ranks of `communicator`, by stage.
    """

    def __init__(self, communicator: Communicator, ranks: Sequence[int]) -> None:
        self._communicator, self._ranks = communicator, ranks
        self.rank, self.size = ranks.index(communicator.rank), len(ranks)

    def send(self, peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
        """Begin to send memory to a stage."""
        return self._communicator.send(self._ranks[peer], tag, data, size_bytes)

    def receive(self, peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
        """Begin to receive from a stage."""
        return self._communicator.receive(self._ranks[peer], tag, data, size_bytes)

    def done(self, operation: int) -> bool:
        """Return True if the operation has ended."""
        return self._communicator.done(operation)

    def wait(self, operation: int, limit_s: float | None = None) -> None:
        """Wait until the operation has ended."""
        self._communicator.wait(operation, limit_s)

    def notify_failure(self, text: str) -> None:
        """End all pipelines with StageFailed."""
        self._communicator.notify_failure(text)

    def close(self, limit_s: float | None = None) -> None:
        """Wait for all that is in flight, and close."""
        self._communicator.close(limit_s)
