"""Which operations of this process have been told how to travel, so that each is told once."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from paceline.codecs.choice import Choice
from paceline.native.codecs import NOT_ENCODED, choose_codec, choose_collective
from paceline.native.library import world

# The codec, whether with error feedback, and the collective or None.
_Told = tuple[int, bool, int | None]
_NOTHING: _Told = (NOT_ENCODED, False, None)

# By library and process set: the world in which, and by name what the library knows.
_told: dict[tuple[int, int], tuple[object, dict[str, _Told]]] = {}


def tell(library: ctypes.CDLL, process_set_id: int, names: Iterable[str], choice: Choice) -> None:
    """Have `names` travel as `choice` says, on all ranks, before their next call and while nothing of them travels."""
    place, here = (library._handle, process_set_id), world(library)
    known, told = _told.get(place, (None, {}))
    if known is not here:
        told = {}
    _told[place] = here, told
    wanted: _Told = _NOTHING
    if choice.own or choice.lossy:
        exactly = choice.own_codec or choice.lossy  # what was told in a world before lasts
        codec = (choice.codec_number, choice.error_feedback) if exactly else _NOTHING[:2]
        wanted = (*codec, choice.collective_number if choice.own_collective else None)
    for name in names:
        before = told.get(name, _NOTHING)
        # Another process set may have taken this number over, and knows nothing then.
        if wanted == before and (process_set_id == 0 or wanted == _NOTHING):
            continue
        told[name] = wanted
        if wanted[:2] != _NOTHING[:2] or before[:2] != wanted[:2]:
            choose_codec(library, process_set_id, name, *wanted[:2])
        if wanted[2] is not None:
            choose_collective(library, process_set_id, name, wanted[2])
