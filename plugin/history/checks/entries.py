"""Rounds that the gradients of one tensor of one rank have entered, as far as its history shows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.history.checks.reading import Stream
from paceline.history.records import Applied, Drained, Loaded, Lost, Produced, Put


class Steps:
    """A function of whole numbers that never falls, of which some values are known."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._values: list[int] = []

    def learn(self, place: int, value: int) -> None:
        """Note a value; a later one replaces it."""
        at = bisect_left(self._places, place)
        if at < len(self._places) and self._places[at] == place:
            self._values[at] = value
        else:
            self._places.insert(at, place)
            self._values.insert(at, value)

    def bounds(self, place: int, most: int) -> tuple[int, int]:
        """Return the least and the largest possible value at `place`; `most` where nothing is known above it."""
        below, above = bisect_right(self._places, place), bisect_left(self._places, place)
        return (
            self._values[below - 1] if below else 0,
            self._values[above] if above < len(self._places) else most,
        )

    @property
    def last(self) -> tuple[int, int]:
        """The last known place and its value; zeros if there is none."""
        return (self._places[-1], self._values[-1]) if self._places else (0, 0)


@dataclass
class Entries:
    """Gradients and results of one tensor on one rank, and bounds of k(r), the gradients in rounds 1 to r.

    Attributes:
        given: gradients, in the order of submission.
        applied: results, in the order of arrival.
        facts: known values of k, by r.
        rests: values of k at which the rank has waited in a drain or an average, where no round waits for it.
        first: rounds that another optimizer had made before.
        discarded: rounds whose results the script has dropped: the last one received before, and the last one dropped.
        forgotten: True if the script, or a failure, has dropped late gradients.
        usable: False if a saved state was loaded: contributions of an earlier run are in the rounds.
        restored: places in `applied` of the first results after a load, which include what the earlier run had missed.
    """

    stream: Stream
    given: list[Produced] = field(default_factory=list)
    applied: list[Applied] = field(default_factory=list)
    facts: Steps = field(default_factory=lambda: Steps())
    rests: list[int] = field(default_factory=list)
    first: int = 0
    discarded: dict[int, int] = field(default_factory=dict)
    forgotten: bool = False
    usable: bool = True
    restored: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, stream: Stream) -> dict[str, Entries]:
        """Return the entries of all tensors of a rank."""
        found: dict[str, Entries] = {}
        loaded = False
        for record in stream.records:
            if isinstance(record, Produced):
                new = cls(stream, usable=not loaded, restored={0} if loaded else set())
                one = found.setdefault(record.tensor, new)
                one.given.append(record)
            elif isinstance(record, Applied) and record.tensor in found:
                found[record.tensor]._receive(record)
            elif isinstance(record, Lost) and record.reason == "forget" and record.tensor in found:
                found[record.tensor].forgotten = True
            elif isinstance(record, Lost) and record.tensor in found and record.received:
                found[record.tensor].discarded[record.after] = record.received
                found[record.tensor].facts.learn(record.received, len(found[record.tensor].given))
            elif isinstance(record, (Drained, Put)):
                for one in found.values():
                    one.rests.append(len(one.given))
            elif isinstance(record, Loaded):
                loaded = True
                for one in found.values():
                    one.usable = False
                    one.restored.add(len(one.applied))
        return found

    def _receive(self, one: Applied) -> None:
        if not self.applied:
            self.first = one.after
            self.facts.learn(one.after, 0)
        self.applied.append(one)
        self.facts.learn(one.rounds, len(self.given) - one.pending)

    @property
    def produced(self) -> int:
        """Number of gradients."""
        return len(self.given)

    @property
    def pending(self) -> int:
        """Number of gradients that no round has taken, as far as known."""
        return self.produced - self.facts.last[1]

    @property
    def rounds(self) -> int:
        """Number of rounds that this rank knows of."""
        return self.facts.last[0]

    @property
    def steps(self) -> int:
        """The last step with a gradient."""
        return self.given[-1].step if self.given else 0

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the least and the largest possible k(r) for round `number`."""
        return self.facts.bounds(number, self.produced)

    def possible(self, number: int) -> Sequence[int]:
        """Return the possible values of k(r) for round `number`."""
        least, most = self.bounds(number)
        return range(least, most + 1)

    def may_contribute(self, number: int) -> bool:
        """Return True if a gradient of this rank may be in round `number`."""
        return self.bounds(number)[1] > self.bounds(number - 1)[0]

    def may_rest(self, number: int) -> bool:
        """Return True if the rank may have waited for others before round `number`: no round waits for it then."""
        least, most = self.bounds(number - 1)
        at = bisect_left(self.rests, least)
        return at < len(self.rests) and self.rests[at] <= most
