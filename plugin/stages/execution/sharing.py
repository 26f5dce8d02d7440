"""Tensors or variables that layers of two stages share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from paceline.errors import UsageError


class Shared(NamedTuple):
    """A tensor or variable that `stage` has under `name`, and an earlier stage, `before`, under `other`."""

    shared: Any
    name: str
    stage: int
    other: str
    before: int


def shared(layers: Iterable[Iterable[tuple[str, Any]]], firsts: Sequence[int]) -> Iterator[Shared]:
    """Yield each object that layers of two stages have in common.

    `layers`: names and objects of each layer. `firsts`: first layer of each stage.
    """
    owner: dict[int, tuple[str, int]] = {}
    for number, layer in enumerate(layers):
        stage = sum(first <= number for first in firsts) - 1
        for name, one in layer:
            other, before = owner.setdefault(id(one), (name, stage))
            if before != stage:
                yield Shared(one, name, stage, other, before)


def refuse_shared(
    kind: str, layers: Iterable[Iterable[tuple[str, Any]]], firsts: Sequence[int], other: str = ""
) -> None:
    """Raise UsageError for the first shared object. `kind`: the framework's word for it; `other`: one more remedy."""
    for one in shared(layers, firsts):
        raise UsageError(
            f"{one.name} of stage {one.stage} is the same {kind} as {one.other} of stage {one.before}: each would "
            "train a copy of its own.",
            f"Cut the model so that both are in one stage, or give them {kind}s of their own{other}.",
        )
