"""What is measured, and what the controller and a rank tell each other."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.collectives.bounds import OPERATIONS as OPERATIONS
from paceline.examples.benchmarks.networks import models
from paceline.launch.probe.buffers import Case as Case
from paceline.launch.probe.calls import MODEL as MODEL
from paceline.launch.quantities import ELEMENT_BYTES

_MODEL = "bert-base"  # whose sizes of tensors a model of any size has


def model_case(model_bytes: int) -> Case:
    """Parameters of about so many bytes, broadcast."""
    model = models.find(_MODEL)
    scaled = [layer.scaled(model_bytes / model.gradient_bytes) for layer in model.layers]
    sizes = tuple(math.prod(shape) * ELEMENT_BYTES for layer in scaled for _, shape in layer.tensors)
    return Case(MODEL, model_bytes, tensor_bytes=sizes)


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
