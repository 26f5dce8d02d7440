"""Arguments of hvd.reduce and its variants, common to all frameworks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from paceline.collectives.reduce import Reduce, check

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True)
class Call:
    """Arguments of one call, and the `Reduce` derived from them in `about`."""

    about: Reduce
    root_rank: int
    op: Any
    prescale_factor: float
    postscale_factor: float
    process_set: Any


class Form(Protocol[Result_co]):
    """Signature that users call. `op` defaults to Average and `process_set` to all ranks, as in Horovod."""

    def __call__(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        op: Any = ...,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Any = ...,
    ) -> Result_co:
        """Reduce `tensor` to `root_rank`. Raises UsageError as `check` does."""
        ...


def form_of(horovod: Any, unnamed: Callable[[Any], str]) -> Callable[[Callable[[Any, Call], Result]], Form[Result]]:
    """Decorate `function(tensor, call)` to give it the signature of `Form`; its docstring is kept.

    `horovod` is Horovod's module of the framework. `unnamed` generates names for unnamed calls over a process set.
    """

    def decorate(function: Callable[[Any, Call], Result]) -> Form[Result]:
        def called(
            tensor: Any,
            root_rank: int,
            name: str | None = None,
            op: Any = horovod.Average,
            prescale_factor: float = 1.0,
            postscale_factor: float = 1.0,
            process_set: Any = horovod.global_process_set,
        ) -> Result:
            how = (op, prescale_factor, postscale_factor, process_set)
            return function(
                tensor, Call(check(horovod, name or unnamed(process_set), root_rank, *how), root_rank, *how)
            )

        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(called, attribute, getattr(function, attribute))
        return called

    return decorate
