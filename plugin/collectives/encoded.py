"""A script's own allreduces through a codec: hvd.allreduce(x, name="statistics", codec="q8")."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from paceline.arguments import choice_asked
from paceline.codecs.choice import EXACT
from paceline.codecs.encoding import dtype_name
from paceline.errors import UsageError

_DOCUMENTED = """

    `codec` (Paceline): how values in CPU memory travel, such as "q8" (docs/methods/codecs.md), for sums and
    averages of floating-point numbers that have a `name`. Nothing is fed back: what rounding loses is lost. None, the
    default, and "none": as they are, whatever PACELINE_CODEC says. All ranks give the same. Raises UsageError for what
    cannot travel so.
    """


Arguments = inspect.BoundArguments


def _call(function: Callable[..., Any], given: Arguments) -> Any:
    return function(*given.args, **given.kwargs)


def with_codec(
    horovod: Any, name: str, call_named: Callable[[Callable[..., Any], Arguments], Any] = _call
) -> Callable[..., Any]:
    """Return the allreduce `name` of Horovod's module `horovod` with one more argument: codec.

    `call_named` calls it such that the operation gets the name in its arguments.
    """
    original = getattr(horovod, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def encoded(*args: Any, codec: str | None = None, **options: Any) -> Any:
        call = getattr(horovod, name)  # looked up per call: it may have been replaced
        if codec is None or codec == EXACT:
            return call(*args, **options)
        choice = choice_asked(codec, error_feedback=False)
        given = signature.bind(*args, **options)
        _check(horovod, name, codec, given.arguments)
        # Names of TensorFlow's graph nodes cannot begin or end with a mark; the part before a slash is the scope.
        scope, slash, last = given.arguments["name"].rpartition("/")
        given.arguments["name"] = f"{scope}{slash}encoded{choice.mark}{last}"
        return call_named(call, given)

    encoded.__doc__ = (original.__doc__ or "").rstrip() + _DOCUMENTED
    del encoded.__dict__["__wrapped__"]  # its signature has no codec
    parameters = list(signature.parameters.values())
    codec = inspect.Parameter("codec", inspect.Parameter.KEYWORD_ONLY, default=None)
    encoded.__dict__["__signature__"] = signature.replace(parameters=[*parameters, codec])
    return encoded


def _check(horovod: Any, name: str, codec: str, given: dict[str, Any]) -> None:
    where = f"Rank {horovod.rank()}: {name}(..., codec={codec!r})"
    if not given.get("name"):
        raise UsageError(f"{where} has no name.", "Give it a name=, the same on all ranks.")
    if given.get("op") not in (None, horovod.Sum, horovod.Average):
        raise UsageError(
            f"{where} of {given['name']!r} is neither a sum nor an average.", "Leave codec= out, or use op=hvd.Sum."
        )
    if given.get("compression") not in (None, horovod.Compression.none):
        raise UsageError(
            f"{where} of {given['name']!r} was given a compression, too.", "Leave compression= or codec= out."
        )
    tensors = given.get("tensors") or [given["tensor"]]
    for one in tensors:
        sparse = getattr(one, "is_sparse", False) or hasattr(one, "dense_shape")
        if sparse or "float" not in dtype_name(one):
            found = "a sparse tensor" if sparse else f"{dtype_name(one)}, of which rounding changes the values"
            raise UsageError(f"{where} of {given['name']!r} was given {found}.", "Leave codec= out.")
