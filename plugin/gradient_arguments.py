"""The arguments that all wrappers of optimizers and tapes have: how gradients travel, and what becomes of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from paceline.arguments import check_choice, choice_asked, exchange_asked
from paceline.codecs.choice import Choice
from paceline.exchange.declaration import ExchangeSettings
from paceline.fusion.adapters import fuse
from paceline.registry.exchanges import Function, lists_exchanges


class GradientArguments(TypedDict, total=False):
    """None, or left out: as the variables say."""

    fusion: Any
    exchange: str | ExchangeSettings | None
    codec: str | None
    error_feedback: bool | None
    collective: str | None


NAMES = tuple(GradientArguments.__annotations__)


@dataclass(frozen=True)
class Asked:
    """What they ask for."""

    fusion: Any
    exchange: ExchangeSettings
    choice: Choice

    def check(self, compression: Any, none: Any) -> None:
        """Raise UsageError for a codec with another compression than `none`, or where no gradients travel."""
        check_choice(self.choice, compression, none, self.exchange)

    def fuse(self, library: str) -> None:
        """Have Horovod for "torch" or "tensorflow" merge so."""
        fuse(library, self.fusion)


def asked(wrapper: str, given: Mapping[str, Any]) -> Asked:
    """What `given`, some GradientArguments of `wrapper`, ask for.

    Raises TypeError for other arguments, UserError for what cannot be used.
    """
    for name in given:
        if name not in NAMES:
            raise TypeError(f"{wrapper}() got an unexpected keyword argument {name!r}")
    travel = [given.get(name) for name in ("codec", "error_feedback", "collective")]
    return Asked(given.get("fusion"), exchange_asked(given.get("exchange")), choice_asked(*travel))


def takes_gradient_arguments(function: Function) -> Function:
    """Decorator: help() and inspect name the GradientArguments that `function` takes among its **arguments.

    The line `{exchanges}` of the docstring becomes a list of all exchanges.
    """
    signature = inspect.signature(function)
    *others, rest = signature.parameters.values()
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in NAMES]
    further = [] if GradientArguments.__name__ in str(rest.annotation) else [rest]
    function.__signature__ = signature.replace(parameters=[*others, *named, *further])  # type: ignore[attr-defined]
    return lists_exchanges(function)
