"""What is measured, and what the controller and a rank tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.collectives.bounds import OPERATIONS as OPERATIONS

MODEL = "broadcast_parameters"  # an operation of its own: Horovod's call of that name, on a model of so many bytes


@dataclass(frozen=True)
class Case:
    """An operation on messages of `size_bytes`, of which `in_flight` are handed in together."""

    operation: str
    size_bytes: int
    in_flight: int = 1

    @property
    def name(self) -> str:
        """Of the operation, the same on all ranks; nothing else has it."""
        return f"collectives.{self.operation}.{self.size_bytes}"


@dataclass(frozen=True)
class Connected:
    """A rank can call these operations now."""

    operations: tuple[str, ...]


@dataclass(frozen=True)
class Measure:
    """Make so many calls, each at a moment that the controller gives; `warm_up`: and one before them at any moment."""

    case: Case
    calls: int
    warm_up: bool


@dataclass(frozen=True)
class Here:
    """A rank is ready for its next call."""


@dataclass(frozen=True)
class Go:
    """Call when the machine's steady clock shows `at_s`: all ranks, which share it, begin together."""

    at_s: float


@dataclass(frozen=True)
class Called:
    """What one rank measured, a value per call.

    `begin_s` and `end_s` are times of the machine's steady clock; `cpu_s` is processor time of all threads in between.
    `message_s`, empty where the system has nothing but the collective: what the messages took once the ranks had
    agreed on them, from the first one's beginning to the last one's end.
    """

    begin_s: tuple[float, ...]
    end_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    message_s: tuple[float, ...] = ()
