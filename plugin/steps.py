"""Steps of the optimizers and pipelines of this rank, where Python runs them."""

from __future__ import annotations

import collections

_steps: collections.Counter[int] = collections.Counter()  # by the identity of what makes them


def count_step(maker: object) -> None:
    """Count a step of `maker`, an optimizer or a pipeline."""
    _steps[id(maker)] += 1


def most_steps() -> int:
    """Return the number of steps of the optimizer or the pipeline that made the most."""
    return max(_steps.values(), default=0)
