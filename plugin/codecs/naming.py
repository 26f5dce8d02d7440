"""Names of operations that carry their choice (Choice.mark), and the owner of the residuals under each name."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable

from paceline.native.codecs import put_residual
from paceline.native.world import process

_MARK = re.compile(">[a-z0-9_]+>")


class _Owners(dict[tuple[int, str], int]):
    """(process set, name) -> number of the last owner. Elastic training continues with its residuals."""


def unmarked(name: str) -> str:
    """Return the name without its mark: for values that must arrive exactly."""
    return _MARK.sub("", name)


def own(library: ctypes.CDLL, process_set_id: int, name: str, owner: int) -> None:
    """Assign `name` to `owner`; a residual of the previous owner is dropped."""
    owners = process(library).of(_Owners)
    if owners.get((process_set_id, name)) != owner:
        owners[process_set_id, name] = owner
        put_residual(library, process_set_id, name, None)


def disown(library: ctypes.CDLL, process_set_id: int, names: Iterable[str], owner: int) -> None:
    """Release `owner`: drop the residuals under those `names` that it still owns."""
    owners = process(library).of(_Owners)
    for name in [name for name in names if owners.get((process_set_id, name)) == owner]:
        del owners[process_set_id, name]
        put_residual(library, process_set_id, name, None)
