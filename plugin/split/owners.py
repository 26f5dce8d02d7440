"""Assignment of parameters to the ranks that update them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class Owners:
    """Assigns each span of neighbouring parameters to the rank with the fewest bytes so far.

    All ranks pass the same spans in the same order and get the same owners. A parameter keeps its owner, which holds
    its optimizer state, when parameters are added.
    """

    def __init__(self, ranks: int) -> None:
        self._bytes = [0] * ranks
        self._of: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._of

    def of(self, name: str) -> int:
        """Return the owner of the parameter, a rank in the process set."""
        return self._of[name]

    def add(self, spans: Iterable[Sequence[tuple[str, int]]]) -> None:
        """Assign the parameters without an owner; a span is a list of (name, bytes)."""
        for span in spans:
            fresh = [(name, count) for name, count in span if name not in self._of]
            owner = min(range(len(self._bytes)), key=self._bytes.__getitem__)
            self._bytes[owner] += sum(count for _, count in fresh)
            self._of.update({name: owner for name, _ in fresh})

    @classmethod
    def of_saved(cls, ranks: int, owners: Mapping[str, int], spans: Iterable[Sequence[tuple[str, int]]]) -> Owners:
        """Return an assignment that was saved."""
        found = cls(ranks)
        found._of.update(owners)
        for name, count in (one for span in spans for one in span):
            if name in owners:
                found._bytes[owners[name]] += count
        return found

    @property
    def shares_bytes(self) -> tuple[int, ...]:
        """Bytes of parameters, by owner."""
        return tuple(self._bytes)
