"""Recording of the last steps without a trace, for metrics."""

from __future__ import annotations

import ctypes

from paceline.native.world import process

# Enough for the medians of core/record/recorder.h.
_STEPS = 32


class StepsKept:
    """Marks a library that records steps from now on."""


def keep_steps(library: ctypes.CDLL, recorded: bool) -> None:
    """Make `library` record steps. `recorded`: a trace already records them."""
    if process(library).find(StepsKept) is None:
        process(library).put(StepsKept())
        if not recorded:
            library.horovod_paceline_record_start(_STEPS)
