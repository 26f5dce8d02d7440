"""Names of operations that say how they travel (Choice.mark), and whose residuals are kept under them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable

from paceline.native.codecs import put_residual
from paceline.native.world import process

_MARK = re.compile(">[a-z0-9_]+>")


class _Owners(dict[tuple[int, str], int]):
    """By process set and name: whose gradients had it last. Elastic training goes on with their residuals."""


def unmarked(name: str) -> str:
    """The same operation where nothing is encoded: for what must arrive as it is."""
    return _MARK.sub("", name)


def own(library: ctypes.CDLL, process_set_id: int, name: str, owner: int) -> None:
    """`name` belongs to `owner` from now on; what another one's encoding has lost under it is dropped."""
    owners = process(library).of(_Owners)
    if owners.get((process_set_id, name)) != owner:
        owners[process_set_id, name] = owner
        put_residual(library, process_set_id, name, None)


def disown(library: ctypes.CDLL, process_set_id: int, names: Iterable[str], owner: int) -> None:
    """`owner` is gone, and with it what encoding has lost under those of `names` that are still its."""
    owners = process(library).of(_Owners)
    for name in [name for name in names if owners.get((process_set_id, name)) == owner]:
        del owners[process_set_id, name]
        put_residual(library, process_set_id, name, None)
