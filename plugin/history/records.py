"""Records of a history: one line of JSON each, in files that one rank each has written.

Every record but `World` and `Ended` belongs to an exchange, `x`, whose header `Made` precedes it in the same file. A
`step` counts the updates of that exchange in this world, from 1. `tensor` is a member of a bucket: the name of a
parameter or of a flat bucket (PyTorch), or the index of a variable (Keras, TensorFlow).
"""

from __future__ import annotations

import msgspec

from paceline.history.sums import Sums

# Version of the format.
FORMAT = 1


class Record(msgspec.Struct, frozen=True, tag_field="record", omit_defaults=True):
    """A line of a history."""


class World(Record, frozen=True, tag="world"):
    """A world begins: init(). `world` identifies it, equal on all ranks."""

    world: int
    rank: int
    size: int
    library: str
    pid: int
    format: int = FORMAT


class Ended(Record, frozen=True, tag="ended"):
    """The world ends on this rank: shutdown(), or the end of the script. `failed`: the script raised."""

    world: int
    failed: bool = False


class Made(Record, frozen=True, tag="exchange"):
    """An optimizer or tape begins to exchange gradients.

    Attributes:
        x: number of the exchange in this file.
        world: the world that it belongs to.
        label: name of the optimizer or tape, with a number if the script has made several of that name; equal on all
            ranks.
        exchange: sync, pipelined, partial, split or local.
        ranks: the ranks whose gradients are combined; local: this rank, or those of its site.
        averaged: the ranks whose weights are averaged.
        divisor: number by which a sum over the ranks is divided: the number of ranks for averages, else 1.
        delay: K - 1 of the pipelined exchange.
        quorum: ranks that a partial round waits for; 0 if they are drawn.
        max_lag: staleness bound of partial rounds; 0: unbounded.
        sums: True if sums of results can be compared with sums of contributions.
        rounding: unit roundoff of the type on the wire, if that is coarser than the gradients' own; else 0.
        settings: the settings, for people.
    """

    x: int
    world: int
    label: str
    exchange: str
    ranks: tuple[int, ...]
    averaged: tuple[int, ...]
    divisor: int
    delay: int = 0
    quorum: int = 0
    max_lag: int = 0
    sums: bool = True
    rounding: float = 0.0
    settings: str = ""


class Produced(Record, frozen=True, tag="produced"):
    """This rank submitted a gradient. `weight`: the weight appended to it, if it has one."""

    x: int
    step: int
    tensor: str
    dtype: str
    sums: Sums
    weight: float | None = None


class Applied(Record, frozen=True, tag="applied"):
    """This rank received a result, which its optimizer applies in `step`.

    Attributes:
        of: the step whose gradients are in it; 0 for partial rounds.
        drain: True if a drain returned it.
        after: partial rounds: results of rounds up to this one had been received before.
        received: partial rounds: results of rounds up to this one have been received now.
        rounds: partial rounds performed when this was written.
        pending: gradients of this rank that no round had taken by then: they are late.
        owner: split: the rank in the process set that has the result; -1: every rank has a shard.
        before: split: elements of the bucket before this rank's shard.
    """

    x: int
    step: int
    tensor: str
    sums: Sums
    of: int = 0
    drain: bool = False
    after: int = 0
    received: int = 0
    rounds: int = 0
    pending: int = 0
    owner: int | None = None
    before: int = 0


class Step(Record, frozen=True, tag="step"):
    """All results of a step were received. `answered`: False if there are none, and no update follows."""

    x: int
    step: int
    answered: bool = True


class Updated(Record, frozen=True, tag="updated"):
    """The optimizer has made an update after `step`."""

    x: int
    step: int


class Weights(Record, frozen=True, tag="weights"):
    """Hashes of weights, by their index, that all ranks have alike: after `step`, or after a drain that follows it.

    `average`: number of averages before; only for exchanges that average weights.
    """

    x: int
    step: int
    hashes: dict[int, int]
    drain: bool = False
    average: int = 0


class Lost(Record, frozen=True, tag="lost"):
    """Gradients of these steps are not applied on purpose; `reason` in one word.

    discard: the script called discard(). frozen: their parameter was left out of an update while they were in flight.
    forget: ranks failed or changed, or a state was loaded; for partial rounds without steps: those that are late.
    """

    x: int
    step: int
    tensor: str
    steps: tuple[int, ...]
    reason: str
    after: int = 0
    received: int = 0


class Loaded(Record, frozen=True, tag="loaded"):
    """A state was loaded before `step`; gradients in flight in it have steps below 0."""

    x: int
    step: int


class Put(Record, frozen=True, tag="put"):
    """This rank submitted a weight to average number `number` of this `kind`; `work`: its weight in the mean."""

    x: int
    number: int
    tensor: str
    sums: Sums
    dtype: str = "float32"
    work: float | None = None
    kind: str = ""
    exact: bool = True


class Averaged(Record, frozen=True, tag="averaged"):
    """This rank received a mean."""

    x: int
    number: int
    tensor: str
    sums: Sums
    kind: str = ""


class Drained(Record, frozen=True, tag="drained"):
    """A drain ended, after `step`, with this number of updates. `rounds`: partial rounds of each tensor until then."""

    x: int
    step: int
    updates: int
    rounds: dict[str, int] = {}


AnyRecord = (
    World | Ended | Made | Produced | Applied | Step | Updated | Lost | Put | Averaged | Weights | Drained | Loaded
)
