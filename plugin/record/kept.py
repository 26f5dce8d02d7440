"""Steps that are recorded for as long as this process runs, though no trace is asked for."""

from __future__ import annotations

import ctypes

from paceline.native.world import process

# Enough for the medians of core/record/recorder.h.
_STEPS = 32


class StepsKept:
    """Marks a library that records steps from now on."""


def keep_steps(library: ctypes.CDLL, recorded: bool) -> None:
    """Have `library` record steps. `recorded`: it does already, for a trace."""
    if process(library).find(StepsKept) is None:
        process(library).put(StepsKept())
        if not recorded:
            library.horovod_paceline_record_start(_STEPS)
