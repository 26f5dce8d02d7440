"""The arguments that all wrappers of optimizers and tapes have: how gradients travel, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.arguments import check_choice, choice_asked, exchange_asked
from paceline.codecs.choice import Choice
from paceline.errors import UserError
from paceline.exchange.declaration import ExchangeSettings
from paceline.fusion.adapters import fuse
from paceline.registry.exchanges import declaration_of


@dataclass(frozen=True)
class Asked:
    """What they ask for."""

    fusion: Any
    exchange: ExchangeSettings
    choice: Choice

    def check(self, compression: Any, none: Any) -> None:
        """Raise UsageError for a codec with another compression than `none`, or where no gradients travel."""
        check_choice(self.choice, compression, none)

    def fuse(self, library: str) -> None:
        """Have Horovod for "torch" or "tensorflow" merge so."""
        fuse(library, self.fusion)


def asked(
    fusion: Any,
    exchange: str | ExchangeSettings | None,
    codec: str | None,
    error_feedback: bool | None,
    collective: str | None,
) -> Asked:
    """What a wrapper's arguments ask for; None: what the variables say. Raises UserError for what cannot be used."""
    chosen = exchange_asked(exchange)
    if chosen.torch_alone:
        word = declaration_of(chosen).word
        raise UserError(
            f"The exchange {word} was given to Keras or TensorFlow; it is PyTorch's alone.",
            f'Use exchange="sync", or {word} with paceline.torch.',
        )
    return Asked(fusion, chosen, choice_asked(codec, error_feedback, collective))
