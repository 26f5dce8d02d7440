"""What is measured, and what the controller and a rank tell each other."""

from __future__ import annotations

from dataclasses import dataclass

# Models: stages of a layer that sleep, and stages of blocks that compute.
SLEEPING, BLOCKS = "sleeping", "blocks"
MODELS = (SLEEPING, BLOCKS)


@dataclass(frozen=True)
class Case:
    """A model of `stages` stages, and mini-batches of `microbatches` micro-batches.

    `forward_s`, `backward_s`: what a pass of one stage and micro-batch takes, where stages sleep.
    """

    model: str
    stages: int
    microbatches: int
    forward_s: float
    backward_s: float

    @property
    def fill(self) -> int:
        """Steps before measuring: the pipeline is full, and both ends know what tensors travel."""
        return 3 + -(-2 * (self.stages - 1) // self.microbatches)


@dataclass(frozen=True)
class Connected:
    """A rank has joined the others."""


@dataclass(frozen=True)
class Train:
    """Train the model of `case` from its beginning by `schedule`: `case.fill` steps, then `steps` measured ones."""

    case: Case
    schedule: str
    steps: int


@dataclass(frozen=True)
class Trained:
    """What one stage measured over `microbatches` micro-batches.

    `busy_s` of `wall_s` it computed, or slept in place of that; `forward_s`, `backward_s`: what one of its passes took,
    mean. `cpu_s`: processor time of all threads. `weight_copies` and `activations` (micro-batches between their
    passes): what it held at most, `activations` while it was measured. `loss`: of the last mini-batch that the stage
    knows it of.
    """

    microbatches: int
    wall_s: float
    busy_s: float
    forward_s: float
    backward_s: float
    cpu_s: float
    weight_copies: int
    activations: int
    loss: float | None
