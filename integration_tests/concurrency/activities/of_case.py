"""The activities of a case."""

from __future__ import annotations

from integration_tests.concurrency.activities.collectives import Barrier, Broadcasts, HandMade
from integration_tests.concurrency.activities.evaluation import Evaluation
from integration_tests.concurrency.activities.joins import Join
from integration_tests.concurrency.activities.optimizers import OtherOptimizer, SetOptimizers, Twin
from integration_tests.concurrency.activities.sets import ChangingSets, TwoSets
from integration_tests.concurrency.activities.threads import Thread, ThreadOptimizer
from integration_tests.concurrency.job import Activity, Job
from integration_tests.concurrency.table import possible

EVERYTHING = "everything"
_OF_WORD: dict[str, type[Activity]] = {
    "twin": Twin,
    "other_optimizer": OtherOptimizer,
    "two_sets": TwoSets,
    "set_optimizers": SetOptimizers,
    "changing_sets": ChangingSets,
    "hand_made": HandMade,
    "barrier": Barrier,
    "broadcasts": Broadcasts,
    "thread": Thread,
    "thread_optimizer": ThreadOptimizer,
    "evaluation": Evaluation,
    "join": Join,
}


def made_of() -> list[str]:
    """Words of all activities that are made by themselves."""
    return list(_OF_WORD)


def made(job: Job) -> list[Activity]:
    """Return the activity of the case, or all that can be at once."""
    word = job.case.activity
    words = [word] if word != EVERYTHING else [one for one in _OF_WORD if one != "join" and possible(job.case, one)]
    return [_OF_WORD[one](job) for one in words]
