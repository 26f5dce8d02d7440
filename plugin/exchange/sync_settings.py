"""The synchronous exchange, Horovod's own: gradients of all ranks are used in the step they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paceline.exchange.declaration import Declaration, ExchangeSettings


@dataclass(frozen=True)
class Sync(ExchangeSettings):
    """Gradients are used in the step they belong to, those of all ranks: what Horovod does without Paceline."""

    tag: ClassVar[int] = 1  # K
    in_step: ClassVar[bool] = True

    @property
    def synchronous(self) -> bool:
        """See ExchangeSettings.synchronous."""
        return True


DECLARATION = Declaration(
    settings=Sync,
    short="sync (in their step)",
    text="updates use gradients of their own step, of all ranks",
    page="docs/guides/pytorch.md",
    implementation="paceline.exchange.sync:SyncExchange",
)
