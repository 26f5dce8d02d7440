"""The synchronous exchange, Horovod's own: updates use all ranks' gradients of their own step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paceline.exchange.declaration import Declaration, ExchangeSettings


@dataclass(frozen=True)
class Sync(ExchangeSettings):
    """Updates use all ranks' gradients of the same step, as in Horovod without Paceline."""

    tag: ClassVar[int] = 1  # K
    in_step: ClassVar[bool] = True

    @property
    def synchronous(self) -> bool:
        """Always True."""
        return True


DECLARATION = Declaration(
    settings=Sync,
    short="sync (those of all ranks)",
    text="updates use gradients of their own step, of all ranks",
    page="docs/guides/pytorch.md",
    implementation="paceline.exchange.sync:SyncExchange",
)
