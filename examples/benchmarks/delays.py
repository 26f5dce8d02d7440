"""Artificial delays that make ranks uneven, as in the experiments of the paper on partial collectives.

Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020,
section 7. In the hyperplane regression one random rank is late in every step ("random"). With CIFAR-10 all ranks are
late, by amounts that rotate between them ("rotating").
"""

from __future__ import annotations

import random

NONE, RANDOM, ROTATING = "none", "random", "rotating"
KINDS = (NONE, RANDOM, ROTATING)


def delay_ms(kind: str, longest_ms: float, step: int, rank: int, ranks: int, seed: int) -> float:
    """Delay of `rank` of `ranks` in `step`, in milliseconds.

    "random": `longest_ms` for one rank, drawn from `seed` and the step, the same on all ranks; 0 for the others.
    "rotating": 1 / ranks to all of `longest_ms`, a different part for each rank. In the next step each rank has the
    next longer delay; the shortest follows the longest. "none": 0. Raises ValueError for another kind.
    """
    if kind == RANDOM:
        return longest_ms if random.Random(f"{seed} {step}").randrange(ranks) == rank else 0.0
    if kind == ROTATING:
        return longest_ms * ((rank + step) % ranks + 1) / ranks
    if kind == NONE:
        return 0.0
    raise ValueError(f"delays are one of {', '.join(KINDS)}, found {kind!r}")
