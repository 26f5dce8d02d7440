"""Failure notice of a rank that leaves because of an error of its script: the errors of the others name it."""

from __future__ import annotations

import ctypes

from paceline.errors import UsageError
from paceline.failure import consequences, excerpt
from paceline.leaving import reasons
from paceline.native.communicator import Communicator, CommunicatorError

_SCRIPT = "its script failed: "


def notify(library: ctypes.CDLL) -> None:
    """Report to all ranks that the script of this one has failed, and with which error; the world ends with it.

    Does nothing if the error follows from another rank's failure, or if ranks are connected by MPI, whose launcher ends
    the others.
    """
    error = reasons.error()
    if library.horovod_size() == 1 or error is None or consequences.of(error):
        return
    place = excerpt.place(error.__traceback__)
    text = f"{excerpt.headline(error)} ({place})" if place else excerpt.headline(error)
    try:
        Communicator(library).report_failure(_SCRIPT + text)
    except (CommunicatorError, UsageError):  # the world has failed before
        return
