"""What ranks must agree on of their exchanges, and of how gradients travel: it follows from the declarations.

This module is what an exchange knows of all others (paceline.exchange.base.AllExchanges).
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.codecs import choice as travels
from paceline.codecs.choice import Choice
from paceline.exchange.declaration import ExchangeSettings
from paceline.registry.exchanges import DECLARATIONS, declaration_of
from paceline.registry.exchanges import described as described

# The numbers of `agreement`.
FIELDS = (
    *(word for one in DECLARATIONS for _, word, _ in one.agreed()),
    f"exchange (number in {', '.join(one.settings.__name__ for one in DECLARATIONS)})",
    *travels.AGREED,
)
AGREED = ", ".join(FIELDS)
_AS_IT_IS = Choice()


def differing(least: Sequence[int], most: Sequence[int], own: Sequence[int]) -> str:
    """Those numbers that are not the same on all ranks, and this rank's."""
    return ", ".join(
        f"{name} from {low} to {high} ({mine} here)"
        for name, low, high, mine in zip(FIELDS, least, most, own, strict=True)
        if low != high
    )


def agreement(exchange: ExchangeSettings, ranks: int, choice: Choice = _AS_IT_IS) -> tuple[int, ...]:
    """What must be the same on all ranks, in whole numbers; `AGREED` says what they are."""
    chosen = declaration_of(exchange)
    numbers = []
    for one in DECLARATIONS:
        for field, _, setting in one.agreed():
            if one is not chosen:
                numbers.append(setting.otherwise(ranks))
            elif setting.number is not None:
                numbers.append(setting.number(exchange, ranks))
            else:
                numbers.append(int(getattr(exchange, field)))
    return (*numbers, DECLARATIONS.index(chosen), *choice.numbers)
