"""One fault is one sentence, such as "at step 7 kill rank 1 in a message"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Action(Enum):
    """Fault of one rank; its value is the part of the sentence, with a place for the rank."""

    KILL = "kill rank {}"
    STOP = "stop rank {}"
    PAUSE = "stop rank {} for a second"
    EXCEPTION = "raise an exception on rank {}"
    MEMORY = "use up the memory of rank {}"
    DISK = "fill the disk of rank {}"
    SHAPE = "change a shape on rank {}"
    INTERRUPT = "interrupt rank {}"
    CUT = "cut the link of rank {}"
    SLOW = "slow down the link of rank {}"


class Moment(Enum):
    """Moment of the fault; its value is the part of the sentence."""

    ENQUEUE = "between two gradients"
    NEGOTIATION = "while the others wait for it"
    MESSAGE = "in a message"
    ARMED = "in an armed step"
    ROUND = "in a partial round"
    PLAN = "while the plan changes"
    DRAIN = "in drain()"
    CHECKPOINT = "while a checkpoint is written"
    INIT = "in init()"
    SHUTDOWN = "in shutdown()"
    RESET = "in an elastic reset"


@dataclass(frozen=True)
class Fault:
    """At step `step`, `action` happens to rank `victim` at that moment; moments outside steps ignore the step."""

    step: int
    action: Action
    victim: int
    moment: Moment

    def __str__(self) -> str:
        return f"at step {self.step} {self.action.value.format(self.victim)} {self.moment.value}"


def parse(sentence: str) -> Fault:
    """Return the fault of a sentence. Raises ValueError with the possible sentences for any other text."""
    found = re.fullmatch(_SENTENCE, " ".join(sentence.split()))
    if found is None:
        raise ValueError(
            f"{sentence!r} describes no fault. A sentence is: at step NUMBER, one of "
            f"{', '.join(one.value.format('R') for one in Action)}; then one of "
            f"{', '.join(one.value for one in Moment)}."
        )
    (action,) = (one for one in Action if one.value == re.sub(r"rank \d+", "rank {}", found["action"]))
    (victim,) = re.findall(r"rank (\d+)", found["action"])
    return Fault(int(found["step"]), action, int(victim), Moment(found["moment"]))


def _any_of(texts: list[str]) -> str:
    return "|".join(re.escape(text).replace(r"\{\}", r"\d+") for text in texts)


_SENTENCE = (
    rf"at step (?P<step>\d+) (?P<action>{_any_of([one.value for one in Action])}) "
    rf"(?P<moment>{_any_of([one.value for one in Moment])})"
)
