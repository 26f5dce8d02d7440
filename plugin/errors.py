"""Errors meant for the user.

A `UserError` describes the problem and its remedy; the command line prints it without a traceback and exits with 2.
Any other uncaught exception is a defect of Paceline and keeps its traceback.
"""

from __future__ import annotations

import functools
from collections.abc import Callable


class UserError(Exception):
    """An error that the user can correct: `problem` names the thing and its value, `remedy` the next step."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}\n{remedy}")
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[Callable[..., UserError], tuple[str, ...]]:
        # Ray and others pickle a worker's exception for the driver.
        return type(self), (self.problem, self.remedy)


class UsageError(UserError, ValueError):
    """An argument or an order of calls that cannot work; a ValueError, too, as Horovod raises in such places."""


@functools.cache
def _lost() -> type[UserError]:
    from horovod.common.exceptions import HorovodInternalError  # not before Horovod's build was checked

    def reduce(self: UserError) -> tuple[Callable[..., UserError], tuple[str, ...]]:
        return ranks_lost, (self.problem, self.remedy)

    own = {"__doc__": "The world ended while a rank waited.", "__reduce__": reduce}
    return type("RanksLost", (UserError, HorovodInternalError), own)


def ranks_lost(problem: str, remedy: str) -> UserError:
    """Return a UserError that is also a HorovodInternalError, which elastic training catches: the world has ended."""
    return _lost()(problem, remedy)
