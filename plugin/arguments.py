"""Values of wrapper arguments, which default to the environment variables."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from paceline import config, renamed
from paceline.codecs.choice import EXACT, Choice
from paceline.config import exchange_of_variables
from paceline.errors import UsageError, UserError
from paceline.exchange.declaration import ExchangeSettings
from paceline.exchange.sync_settings import Sync
from paceline.log import log
from paceline.option import nearest
from paceline.registry.codecs import BFLOAT16, CODECS
from paceline.registry.collectives import AUTO, COLLECTIVES, HOROVODS, IN_RANK_ORDER, OF_CODECS
from paceline.registry.exchanges import DECLARATIONS, NAMES, declaration_of, named


def exchange_asked(exchange: str | ExchangeSettings | None) -> ExchangeSettings:
    """Return the settings of `exchange`; None: those of the variables. Settings equivalent to `Sync` become `Sync`.

    Raises UserError for an unknown exchange, and for one that is not reproducible under PACELINE_REPRODUCIBLE.
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
    check_reproducible(exchange)
    return Sync() if exchange.synchronous else exchange


def check_reproducible(exchange: ExchangeSettings) -> None:
    """Raise UserError if results of this exchange depend on timing and PACELINE_REPRODUCIBLE is set."""
    if not exchange.reproducible and config.settings().reproducible:
        others = (name for one in DECLARATIONS if one.settings.reproducible for name in one.names)
        raise UserError(
            f"PACELINE_REPRODUCIBLE=yes and the exchange {declaration_of(exchange).word} exclude each other: what is "
            "added up depends on which ranks were there in time.",
            f"Leave one of them out; {', '.join(others)} give the same bits in every run.",
        )


def choice_asked(codec: str | None = None, error_feedback: bool | None = None, collective: str | None = None) -> Choice:
    """Return codec and collective of gradients; None: the value of the variables.

    Without a collective, here and in the variables, a codec uses OF_CODECS, and reproducible runs use AUTO.

    Raises:
        UsageError: for unknown names, a codec with Horovod's own collectives, error feedback without a codec, or a
            collective that is not reproducible under PACELINE_REPRODUCIBLE.
    """
    _known("codec", codec, list(CODECS))
    _known("collective", collective, list(COLLECTIVES))
    values = config.settings()
    by_variables = _chosen(values, None, None, None)
    chosen = _chosen(values, codec, error_feedback, collective)
    if error_feedback and not chosen.lossy:
        raise UsageError(
            f"error_feedback=True was given with codec={chosen.codec!r}, which loses nothing to feed back.",
            f"Give codec= as well, one of {', '.join(name for name in CODECS if name != EXACT)}, or leave it out.",
        )
    if chosen.lossy and chosen.collective == HOROVODS:
        how = "codec=" if codec is not None else f"{_variable('codec')}="
        where = "collective=" if collective is not None else f"{_variable('collective')}="
        raise UsageError(
            f"{how}{chosen.codec} was given together with {where}{HOROVODS}, Horovod's own collectives, which know no "
            "codecs.",
            f"Leave {where}{HOROVODS} out, which gives {OF_CODECS}, or use {how}{EXACT}.",
        )
    if values.reproducible and chosen.collective not in (*IN_RANK_ORDER, AUTO):
        where = "collective=" if collective is not None else f"{_variable('collective')}="
        raise UsageError(
            f"{where}{chosen.collective} was given together with {_variable('reproducible')}=yes: it adds up in an "
            "order that is not that of the ranks, and may depend on where in a message a value lies.",
            f"Leave {where}{chosen.collective} out, or use one of {', '.join((*IN_RANK_ORDER, AUTO))}.",
        )
    own_codec = (chosen.codec, chosen.error_feedback) != (by_variables.codec, by_variables.error_feedback)
    own_collective = collective is not None and chosen.collective != by_variables.collective
    if chosen.collective == HOROVODS or chosen.lossy:
        of_bfloat16 = None
    else:
        of_bfloat16 = dataclasses.replace(
            _numbered(BFLOAT16, False, OF_CODECS), own_codec=True, own_collective=by_variables.collective != OF_CODECS
        )
    return dataclasses.replace(chosen, own_codec=own_codec, own_collective=own_collective, bfloat16=of_bfloat16)


def buckets_asked(bucket_bytes: int | None, policy: str | None) -> int:
    """Return the size limit in bytes of gradients in buckets; None: the variables' limit.

    The limit is 0 while gradients are checked for NaN, and while steps are recorded, unless the variables set buckets
    for recorded steps.

    `policy` is the name of the fusion policy that the script asks for, if any. Raises UsageError unless `bucket_bytes`
    is a number of bytes.
    """
    if bucket_bytes is None:
        return config.buckets_beside(policy)
    if not isinstance(bucket_bytes, int) or isinstance(bucket_bytes, bool) or bucket_bytes < 0:
        raise UsageError(f"bucket_bytes={bucket_bytes!r} cannot be used.", "Give a number of bytes from 0 on.")
    return bucket_bytes if config.settings().check_numerics == config.CHECKS[0] else 0


def check_choice(choice: Choice, compression: Any, none: Any) -> None:
    """Raise UsageError for a codec together with a compression other than `none`."""
    if choice.lossy and compression is not none:
        other = getattr(compression, "__name__", compression)
        raise UsageError(
            f"codec={choice.codec} was given together with compression={other}: both make gradients smaller.",
            "Leave compression= out; codec='bf16' sends as many bytes as hvd.Compression.fp16.",
        )


def _known(word: str, name: str | None, known: list[str]) -> None:
    if name is not None and name not in known:
        listed = f"Use one of {', '.join(known)}. {nearest(str(name), known, ' ')}".strip()
        raise UsageError(f"{word}={name!r} is not known.", renamed.value(word, str(name)) or listed)


def _chosen(values: config.Settings, codec: str | None, error_feedback: bool | None, collective: str | None) -> Choice:
    codec = values.codec if codec is None else codec
    error_feedback = values.codec_error_feedback if error_feedback is None else error_feedback
    if collective is None:
        chosen = values.collective != HOROVODS or "collective" in values.given()
        usual = AUTO if values.reproducible else HOROVODS
        collective = values.collective if chosen else OF_CODECS if codec != EXACT else usual
    return _numbered(codec, error_feedback and codec != EXACT, collective)


def _numbered(codec: str, error_feedback: bool, collective: str) -> Choice:
    return Choice(codec, CODECS[codec].number, error_feedback, collective, COLLECTIVES[collective][0])


def _variable(option: str) -> str:
    return f"{config.PREFIX}{option.upper()}"


def warn_weight_unused(rank: int) -> None:
    """Report once, on rank 0, that PACELINE_WEIGHT has no effect on optimizers of PyTorch and on tapes."""
    if rank == 0 and config.settings().weight == config.SAMPLES:
        _warn_weight_unused()


@functools.cache
def _warn_weight_unused() -> None:
    log(
        "PACELINE_WEIGHT=samples acts in Model.fit of Keras alone: here the script gives weights "
        "(docs/guides/weights.md)."
    )
