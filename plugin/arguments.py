"""What an argument of a wrapper means, where it may be left to the variables."""

from __future__ import annotations

from paceline.config import exchange_of_variables
from paceline.errors import UserError
from paceline.exchange.declaration import ExchangeSettings
from paceline.exchange.sync_settings import Sync
from paceline.option import nearest
from paceline.registry.exchanges import DECLARATIONS, NAMES, named


def exchange_asked(exchange: str | ExchangeSettings | None) -> ExchangeSettings:
    """The exchange that is asked for; settings that mean the synchronous one become it. None: what the variables say.

    Raises UserError for what is no exchange.
    """
    if exchange is None:
        exchange = exchange_of_variables()
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
