"""Errors of an exchange, with the gradients that they belong to."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import UserError
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.member import Member


def names_of(members: Sequence[Member]) -> str:
    """The first names of these, for a message."""
    names = ", ".join(repr(member.name) for member in members[:3])
    return names + (f" and {len(members) - 3} more" if len(members) > 3 else "")


def named(error: Exception, names: str) -> Exception:
    """`error`, that came out of an exchange of gradients with these names, as users are given it.

    What has its own remedy stays, and what is not of the exchange: a signal handler of the script may raise anything.
    """
    if isinstance(error, UserError):
        return error
    if "same name as another tensor" in str(error):
        return UsageError(
            f"A gradient named {names} is already travelling.",
            "Two optimizers use this name at the same time: give their named_parameters different prefixes.",
        )
    if isinstance(error, horovod.HorovodInternalError):
        return horovod.HorovodInternalError(f"Gradient of {names}: {error}")
    if "is not supported" in str(error):
        return UsageError(
            f"The gradient of {names} cannot be exchanged: {error}",
            "Use parameters of a type that Horovod carries (float16, bfloat16, float32 or float64).",
        )
    return error
