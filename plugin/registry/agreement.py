"""Numbers that ranks must agree on: settings of all exchanges, and the codec and collective of gradients.

The numbers follow from the declarations. An exchange sees the other exchanges only through this module
(paceline.exchange.base.AllExchanges).
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.codecs import choice as codec_choice
from paceline.codecs.choice import Choice
from paceline.exchange.declaration import ExchangeSettings
from paceline.registry.exchanges import DECLARATIONS, declaration_of
from paceline.registry.exchanges import described as described

# Meaning of each number that `agreement` returns.
FIELDS = (
    *(word for one in DECLARATIONS for _, word, _ in one.agreed()),
    f"exchange (number in {', '.join(one.settings.__name__ for one in DECLARATIONS)})",
    *codec_choice.AGREED,
)
AGREED = ", ".join(FIELDS)
_AS_IT_IS = Choice()


def differing(least: Sequence[int], most: Sequence[int], own: Sequence[int]) -> str:
    """Describe the numbers that differ between ranks: minimum, maximum and this rank's value."""
    return ", ".join(
        f"{name} from {low} to {high} ({mine} here)"
        for name, low, high, mine in zip(FIELDS, least, most, own, strict=True)
        if low != high
    )


def agreement(exchange: ExchangeSettings, ranks: int, choice: Choice = _AS_IT_IS) -> tuple[int, ...]:
    """Return the numbers that must be equal on all ranks; FIELDS describes each."""
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
