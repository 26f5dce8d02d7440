"""The table of activities beside a training, and the cases: activity x exchange x framework x number of ranks.

Axes are generated in full. A rule leaves out combinations that cannot exist, and says why. A refusal has the error that
all ranks must raise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from integration_tests.concurrency.cases import Case
from integration_tests.support.events import ARMED, RESIDUAL

ACTIVITIES = {
    "twin": "a second optimizer of the same exchange and the same names, whose gradients are in flight, too",
    "other_optimizer": "a second optimizer of another exchange, which is drawn",
    "two_sets": "collectives of two process sets that overlap",
    "set_optimizers": "two optimizers of the same exchange, on two process sets that overlap",
    "changing_sets": "process sets that are added, used, and removed",
    "hand_made": "allreduces of all kinds, all-gathers, reduce-scatters, partial rounds; some in flight during steps",
    "barrier": "barriers",
    "broadcasts": "broadcasts of tensors, objects and parameters, all-gathers of objects",
    "thread": "a thread that submits operations all the time (of TensorFlow: within tf.function)",
    "thread_optimizer": "a thread that trains with a second optimizer",
    "evaluation": "an evaluation: weights are read, metrics are averaged, statistics are read",
    "join": "ranks with fewer steps join",
    "everything": "all of these at once, except join",
}
EXCHANGES = (
    "sync", ARMED, "pipelined", "partial", "majority", "solo", "local", "split",
    RESIDUAL, "sync, bf16", "pipelined, q8", "local, q8", "split, q8",
)  # fmt: skip
FRAMEWORKS = (("torch", ""), ("keras", "tensorflow"), ("keras", "torch"))
SIZES = (2, 3, 4, 5)
# Activities with process sets that the script makes while Horovod runs.
OF_SETS = ("two_sets", "set_optimizers", "changing_sets", "everything")
ROUNDS = ("partial", "majority", "solo")


@dataclass(frozen=True)
class Rule:
    """A family of cases that the matrix leaves out."""

    reason: str
    excludes: Callable[[Case], bool]


@dataclass(frozen=True)
class Refusal:
    """A family of cases in which every rank must raise an error: one that matches `pattern`, or that names a rank."""

    reason: str
    matches: Callable[[Case], bool]
    pattern: str


RULES = (
    Rule(
        "Horovod has no barrier for TensorFlow; the activity `broadcasts` has the all-gathers that replace it",
        lambda case: case.activity == "barrier" and case.library == "tensorflow",
    ),
    Rule(
        "of two ranks every process set of several ranks is that of all ranks",
        lambda case: case.activity == "set_optimizers" and case.size == 2,
    ),
    Rule(
        "Keras' split exchange refuses codecs before the first step: activity makes no difference",
        lambda case: case.framework == "keras" and case.exchange == "split, q8" and case.activity != "twin",
    ),
)
REFUSALS = (
    Refusal(
        "Keras' split exchange has no codec",
        lambda case: case.framework == "keras" and case.exchange == "split, q8",
        r"codec.*split|split.*codec",
    ),
    Refusal(
        "a rank that has joined would count as a model of zeros, or withhold the weights that it owns",
        lambda case: case.activity == "join" and case.exchange.partition(",")[0] in ("local", "split"),
        r"waited for all ranks at paceline\.join.*equally many.*hvd\.uneven",
    ),
)


def refusal(case: Case) -> Refusal | None:
    """The refusal that the case must meet, if any."""
    return next((one for one in REFUSALS if one.matches(case)), None)


def combinations(seed: int = 1) -> list[Case]:
    """All combinations; those that can use the same ranks follow each other."""
    axes = itertools.product(FRAMEWORKS, SIZES, (True, False), EXCHANGES, ACTIVITIES)
    return [
        Case(activity, exchange, framework, backend, size, seed)
        for (framework, backend), size, of_sets, exchange, activity in axes
        if (activity in OF_SETS) == of_sets
    ]


def cases(seed: int = 1) -> list[Case]:
    """All combinations that no rule leaves out."""
    return [case for case in combinations(seed) if not any(rule.excludes(case) for rule in RULES)]


def possible(case: Case, activity: str) -> bool:
    """True if an activity works in such a training."""
    return _works(replace(case, activity=activity))


def possible_exchange(case: Case, exchange: str) -> bool:
    """True if an optimizer of the framework may have this exchange."""
    return _works(replace(case, exchange=exchange, activity="twin"))


def _works(case: Case) -> bool:
    return refusal(case) is None and not any(rule.excludes(case) for rule in RULES)
