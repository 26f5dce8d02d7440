"""Names of operations that say how they travel (Choice.mark), and whose residuals are kept under them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable

from paceline.native.codecs import put_residual

_MARK = re.compile(">[a-z0-9_]+>")
# By library and process set, by name: whose gradients had it last.
_owners: dict[tuple[int, int], dict[str, int]] = {}


def unmarked(name: str) -> str:
    """The same operation where nothing is encoded: for what must arrive as it is."""
    return _MARK.sub("", name)


def own(library: ctypes.CDLL, process_set_id: int, name: str, owner: int) -> None:
    """`name` belongs to `owner` from now on; what another one's encoding has lost under it is dropped."""
    names = _owners.setdefault((library._handle, process_set_id), {})
    if names.get(name) != owner:
        names[name] = owner
        put_residual(library, process_set_id, name, None)


def disown(library: ctypes.CDLL, process_set_id: int, names: Iterable[str], owner: int) -> None:
    """`owner` is gone, and with it what encoding has lost under those of `names` that are still its."""
    known = _owners.get((library._handle, process_set_id), {})
    for name in [name for name in names if known.get(name) == owner]:
        del known[name]
        put_residual(library, process_set_id, name, None)
