"""Arguments common to all wrappers of optimizers and tapes: fusion, exchange, codec and collective of gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.arguments import check_choice, choice_asked, exchange_asked
from paceline.codecs.choice import Choice
from paceline.exchange.declaration import ExchangeSettings
from paceline.fusion.adapters import fuse


@dataclass(frozen=True)
class Asked:
    """Checked arguments of a wrapper."""

    fusion: Any
    exchange: ExchangeSettings
    choice: Choice

    def check(self, compression: Any, none: Any) -> None:
        """Raise UsageError for a codec together with a compression other than `none`."""
        check_choice(self.choice, compression, none)

    def fuse(self, library: str) -> None:
        """Apply the fusion policy in Horovod's library for "torch" or "tensorflow"."""
        fuse(library, self.fusion)


def asked(
    fusion: Any,
    exchange: str | ExchangeSettings | None,
    codec: str | None,
    error_feedback: bool | None,
    collective: str | None,
) -> Asked:
    """Return a wrapper's checked arguments; None: the value of the variables. Raises UserError for invalid ones."""
    chosen = exchange_asked(exchange)
    return Asked(fusion, chosen, choice_asked(codec, error_feedback, collective))
