"""Headers of exchanges in a history: what the checks need to know about an optimizer or tape."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

from paceline.exchange.base import Exchange
from paceline.history.records import Made
from paceline.native.world import process, world
from paceline.partial.settings import SUM
from paceline.registry.exchanges import declaration_of


class _Labels(Counter[tuple[int, str]]):
    """Number of exchanges of each process set and label in this world."""


class _Headers:
    """Number of headers in the file of this process."""

    count = 0


def header(exchange: Exchange, number_of_world: int) -> Made:
    """Return the header of an exchange; it has a new number."""
    wire: Any = exchange.wire
    settings: Any = exchange.settings
    numbers = process(wire.library).of(_Headers)
    numbers.count += 1
    gradients: Any = exchange.gradients_wire
    alone = not settings.exchanges_gradients
    ranks = (int(wire.library.horovod_rank()),) if alone else tuple(map(int, gradients.process_set.ranks))
    averages, rounding = gradients.reduces_as()
    word = declaration_of(settings).word
    partial = word == "partial"
    return Made(
        x=numbers.count,
        world=number_of_world,
        label=_label(wire.library, wire.process_set, wire.label),
        exchange=word,
        ranks=ranks,
        averaged=tuple(map(int, wire.process_set.ranks)),
        divisor=len(ranks) if averages else 1,
        delay=getattr(settings, "delay", 0) if word == "pipelined" else 0,
        quorum=settings.count(len(ranks)) if partial else 0,
        max_lag=settings.max_lag if partial else 0,
        sums=rounding is not None and not wire.encoding.choice.lossy and getattr(settings, "missed", SUM) == SUM,
        rounding=rounding or 0.0,
        settings=str(settings),
    )


def _label(library: ctypes.CDLL, process_set: Any, label: str) -> str:
    """Return the label, from its second exchange in this world on with a number."""
    known = world(library).of(_Labels)
    key = int(process_set.process_set_id), label
    known[key] += 1
    return f"{label} ({known[key]})" if known[key] > 1 else label
