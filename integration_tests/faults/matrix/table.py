"""The matrix: which faults can happen at which moments of which jobs, and the cases that follow.

Axes are generated in full; a rule removes a family of combinations that cannot happen, and says why.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.sentences import Action, Fault, Moment

EXCHANGES = {
    "torch": ("sync", "armed", "pipelined", "partial", "local", "split", "stages"),
    "keras": ("sync", "armed", "pipelined", "partial", "local"),
}
# One after the other, so that each family of cases has several: most jobs are small.
SIZES = (3, 4, 3, 4, 3, 5, 3, 4, 3, 4, 3, 5, 3, 4, 8)
BACKENDS = ("tensorflow", "torch", "tensorflow")
FIRST_STEP, LAST_STEP = 3, 6

_BY_SIGNAL = (Action.KILL, Action.STOP, Action.PAUSE, Action.INTERRUPT)
_BY_SCRIPT = (Action.EXCEPTION, Action.MEMORY)
_ON_LINKS = (Action.CUT, Action.SLOW)


@dataclass(frozen=True)
class Rule:
    """A family of combinations that the matrix leaves out."""

    reason: str
    excludes: Callable[[Action, Moment, str, str], bool]


RULES = (
    Rule(
        "only armed jobs have armed steps",
        lambda action, moment, exchange, framework: (moment is Moment.ARMED) and exchange != "armed",
    ),
    Rule(
        "only partial exchanges have rounds",
        lambda action, moment, exchange, framework: (moment is Moment.ROUND) and exchange != "partial",
    ),
    Rule(
        "ranks connect before they know an exchange",
        lambda action, moment, exchange, framework: (
            moment is Moment.INIT and exchange != "sync" and action is not Action.SHAPE
        ),
    ),
    Rule(
        "plans merge gradients; local exchanges and stages send none, split exchanges send whole buckets",
        lambda action, moment, exchange, framework: moment is Moment.PLAN and exchange in ("local", "split", "stages"),
    ),
    Rule(
        "Keras gets all gradients in one call, which enters the negotiation at once",
        lambda action, moment, exchange, framework: (
            moment is Moment.ARMED and framework == "keras" and action is Action.SHAPE
        ),
    ),
    Rule(
        "the script does not run, or does not know, when a message of this exchange is in flight",
        lambda action, moment, exchange, framework: (
            moment is Moment.MESSAGE
            and action in (*_BY_SCRIPT, Action.SHAPE, Action.DISK)
            and (framework == "keras" or exchange in ("local", "stages"))
        ),
    ),
    Rule(
        "a shape is changed where a tensor is submitted: in a step, or before the first one",
        lambda action, moment, exchange, framework: (
            action is Action.SHAPE
            and moment not in (Moment.ENQUEUE, Moment.MESSAGE, Moment.ARMED, Moment.ROUND, Moment.INIT)
        ),
    ),
    Rule(
        "a stage has shapes of its own, which need not be those of another",
        lambda action, moment, exchange, framework: action is Action.SHAPE and exchange == "stages",
    ),
    Rule(
        "local exchanges send no gradients, whose shapes could differ in the first step",
        lambda action, moment, exchange, framework: (
            action is Action.SHAPE and moment is Moment.INIT and exchange == "local"
        ),
    ),
    Rule(
        "Keras has partial rounds of whole steps only",
        lambda action, moment, exchange, framework: (
            action is Action.SHAPE and moment is Moment.ROUND and framework == "keras"
        ),
    ),
    Rule(
        "stages write no history that could fill a disk",
        lambda action, moment, exchange, framework: (
            action is Action.DISK and exchange == "stages" and moment is not Moment.CHECKPOINT
        ),
    ),
    Rule(
        "elastic resets need a launcher, and links emulated hosts: elastic.py and links.py have their cases",
        lambda action, moment, exchange, framework: moment is Moment.RESET or action in _ON_LINKS,
    ),
)
ROOT = Rule(
    "a disk is filled in a file system of its own, which only root can mount",
    lambda action, moment, exchange, framework: action is Action.DISK,
)


def combinations() -> Iterator[tuple[Action, Moment, str, str]]:
    """All combinations of the axes that no rule excludes."""
    rules = RULES if os.getuid() == 0 else (*RULES, ROOT)
    for framework, exchanges in EXCHANGES.items():
        for exchange, moment, action in itertools.product(exchanges, Moment, Action):
            if not any(rule.excludes(action, moment, exchange, framework) for rule in rules):
                yield action, moment, exchange, framework


def cases(seed: int = 1) -> list[Case]:
    """One case for each combination: sizes in turn; rank, step and backend drawn with `seed`."""
    found = []
    for number, (action, moment, exchange, framework) in enumerate(combinations()):
        dice = random.Random(f"{seed} {action} {moment} {exchange} {framework}")
        size = SIZES[(number + seed) % len(SIZES)]
        # Rank 0 writes checkpoints: it is the one whose disk is full.
        victim = 0 if (action, moment) == (Action.DISK, Moment.CHECKPOINT) else dice.randrange(size)
        backend = BACKENDS[(number + seed) % len(BACKENDS)] if framework == "keras" else ""
        fault = Fault(dice.randint(FIRST_STEP, LAST_STEP), action, victim, moment)
        found.append(Case(fault, exchange, framework, backend, size))
    return found
