"""What a wrapper's argument `exchange` means: when gradients are used, and whose."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.config import EXCHANGES, nearest, read
from paceline.errors import UserError
from paceline.partial.settings import MAJORITY, SOLO, Partial
from paceline.pipelined.settings import Pipelined

Exchange = Pipelined | Partial


def resolve(exchange: str | Exchange | None) -> Exchange:
    """The exchange that is asked for; "sync" is a pipelined one with K = 1. None: what the variables say.

    Raises UserError for what is no exchange.
    """
    if isinstance(exchange, (Pipelined, Partial)):
        return exchange
    if exchange is None:
        return _of_variables()
    if exchange == "sync":
        return Pipelined(k=1)
    if exchange == "pipelined":
        return Pipelined()
    if exchange in (SOLO, MAJORITY):
        return Partial(exchange)
    raise UserError(
        f"exchange={exchange!r} is not known.",
        f"Use one of {', '.join(EXCHANGES)}, hvd.Pipelined(k=2, ...) or hvd.Partial(quorum, ...). "
        f"{nearest(str(exchange), list(EXCHANGES))}",
    )


def _of_variables() -> Exchange:
    settings = read()
    if settings.exchange == "pipelined":
        return Pipelined(
            settings.pipeline_k,
            settings.pipeline_warmup_steps,
            settings.pipeline_anneal_steps,
            settings.pipeline_correction,
        )
    if settings.exchange in (SOLO, MAJORITY):
        return Partial(
            settings.exchange,
            max_lag=settings.partial_max_lag,
            sync_every=settings.partial_sync_every,
        )
    return Pipelined(k=1)


# The numbers of `agreement`.
FIELDS = (
    "K", "warm-up steps", "anneal steps", "correction (in millionths)", "quorum", "latest", "max_lag", "sync_every",
    "seed",
)  # fmt: skip
AGREED = ", ".join(FIELDS)


def differing(least: Sequence[int], most: Sequence[int], own: Sequence[int]) -> str:
    """Those numbers that are not the same on all ranks, and this rank's."""
    return ", ".join(
        f"{name} from {low} to {high} ({mine} here)"
        for name, low, high, mine in zip(FIELDS, least, most, own, strict=True)
        if low != high
    )


def agreement(exchange: Exchange, ranks: int) -> tuple[int, ...]:
    """What must be the same on all ranks, in whole numbers; `AGREED` says what they are."""
    pipelined = exchange if isinstance(exchange, Pipelined) else Pipelined(k=1)
    late = (pipelined.k, pipelined.warmup_steps, pipelined.anneal_steps, round(pipelined.correction * 1e6))
    if not isinstance(exchange, Partial):
        return (*late, ranks, 0, 0, 0, 0)
    latest = int(exchange.missed == "latest")
    return (*late, exchange.count(ranks), latest, exchange.max_lag, exchange.sync_every, exchange.seed)
