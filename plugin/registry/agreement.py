"""What a wrapper's argument `exchange` means, and what ranks must agree on: both follow from the declarations."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.config import read
from paceline.errors import UserError
from paceline.exchange.declaration import ExchangeSettings
from paceline.exchange.sync_settings import Sync
from paceline.option import nearest
from paceline.registry.exchanges import DECLARATIONS, NAMES, declaration_of, named


def resolve(exchange: str | ExchangeSettings | None) -> ExchangeSettings:
    """The exchange that is asked for; settings that mean the synchronous one become it. None: what the variables say.

    Raises UserError for what is no exchange.
    """
    if exchange is None:
        values = read()
        exchange = named(values.exchange).of_options(values.exchange, values)
    elif isinstance(exchange, str) and exchange in NAMES:
        one = named(exchange)
        exchange = one.settings(**one.names[exchange])
    if not isinstance(exchange, ExchangeSettings):
        examples = " or ".join(one.example for one in DECLARATIONS)
        raise UserError(
            f"exchange={exchange!r} is not known.",
            f"Use one of {', '.join(NAMES)}, {examples}. {nearest(str(exchange), list(NAMES))}",
        )
    return Sync() if exchange.synchronous else exchange


# The numbers of `agreement`.
FIELDS = (
    *(word for one in DECLARATIONS for _, word, _ in one.agreed()),
    f"exchange (number in {', '.join(one.settings.__name__ for one in DECLARATIONS)})",
)
AGREED = ", ".join(FIELDS)


def differing(least: Sequence[int], most: Sequence[int], own: Sequence[int]) -> str:
    """Those numbers that are not the same on all ranks, and this rank's."""
    return ", ".join(
        f"{name} from {low} to {high} ({mine} here)"
        for name, low, high, mine in zip(FIELDS, least, most, own, strict=True)
        if low != high
    )


def agreement(exchange: ExchangeSettings, ranks: int) -> tuple[int, ...]:
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
    return (*numbers, DECLARATIONS.index(chosen))
