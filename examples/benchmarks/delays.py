"""Delays that make ranks uneven on purpose, as in the experiments of the paper on partial collectives.

Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020,
section 7: one random rank of the hyperplane regression is late in every step ("random"), all ranks of CIFAR-10 are, by
amounts that change places ("rotating").
"""

from __future__ import annotations

import random

NONE, RANDOM, ROTATING = "none", "random", "rotating"
KINDS = (NONE, RANDOM, ROTATING)


def delay_ms(kind: str, longest_ms: float, step: int, rank: int, ranks: int, seed: int) -> float:
    """How long `rank` of `ranks` is held up in `step`, in milliseconds.

    "random": one rank, drawn from `seed` and the step, the same on all ranks, by `longest_ms`; the others not at all.
    "rotating": every rank, by 1 / ranks to all of `longest_ms`; in the next step each has the next longer delay, and
    the longest is followed by the shortest. "none": nobody. Raises ValueError for another kind.
    """
    if kind == RANDOM:
        return longest_ms if random.Random(f"{seed} {step}").randrange(ranks) == rank else 0.0
    if kind == ROTATING:
        return longest_ms * ((rank + step) % ranks + 1) / ranks
    if kind == NONE:
        return 0.0
    raise ValueError(f"delays are one of {', '.join(KINDS)}, found {kind!r}")
