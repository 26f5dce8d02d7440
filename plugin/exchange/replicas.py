"""hvd.check_replicas: comparison of all ranks' weights by checksums."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from paceline.errors import UserError
from paceline.native.agreement import everyone

_REMEDY = "Call check_replicas on all ranks after the same step, with the same model."


def check(library: ctypes.CDLL, weights: Iterable[tuple[str, np.ndarray[Any, Any]]]) -> None:
    """Raise UserError on all ranks unless `weights`, by name, are equal bit for bit. Collective."""
    known = list(weights)
    names = [(name, one.shape, str(one.dtype)) for name, one in known]
    of_names = everyone(library, "paceline.replicas.names", [len(known), zlib.crc32(repr(names).encode())], _REMEDY)
    if len(set(of_names)) > 1:
        raise UserError(
            f"The ranks gave check_replicas weights of other names, shapes or types: expected those of rank 0, "
            f"{of_names[0][0]} weights, found others on ranks {_unlike(of_names)}.",
            "Build the same model on all ranks.",
        )
    sums = [zlib.crc32(np.ascontiguousarray(one).tobytes()) for _, one in known]
    by_rank = everyone(library, "paceline.replicas.sums", sums, _REMEDY)
    differing = [number for number in range(len(known)) if len({one[number] for one in by_rank}) > 1]
    if differing:
        unlike = _unlike([(one[differing[0]],) for one in by_rank])
        raise UserError(
            f"The replicas differ in {len(differing)} of {len(known)} weights, the first {known[differing[0]][0]!r}: "
            f"expected the values of rank 0, found others on ranks {unlike}.",
            "Call drain() on all ranks, where an exchange is not synchronous; else broadcast the weights of one rank "
            "(hvd.broadcast_parameters, hvd.broadcast_variables), and look for what ranks do differently.",
        )


def _unlike(by_rank: list[tuple[int, ...]]) -> str:
    return ", ".join(str(rank) for rank, one in enumerate(by_rank) if one != by_rank[0])


def checker(library: Callable[[], ctypes.CDLL], array_of: Callable[[Any], np.ndarray[Any, Any]]) -> Callable[..., None]:
    """Return `check_replicas` for Keras and TensorFlow, which accepts models and lists of variables."""

    def check_replicas(model: Any) -> None:
        """Compare the weights of all ranks bit for bit; the ranks exchange a checksum of each weight.

        All ranks call it after the same step.

        Args:
            model: a model with `trainable_variables`, or a list of variables.

        Raises:
            UserError: on all ranks if weights differ; it names the first one that differs.
        """
        variables = getattr(model, "trainable_variables", model)
        check(library(), ((getattr(one, "path", one.name), array_of(one)) for one in variables))

    return check_replicas
