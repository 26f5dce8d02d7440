"""Why this rank leaves: in order, or because something failed."""

from __future__ import annotations

import atexit
import sys
import threading
from typing import Any, NoReturn

_exit = sys.exit
_installed = False
_exiting = False
_status: Any = None  # as sys.exit() got it


def _exit_noted(status: Any = None, /) -> NoReturn:
    # Nothing else knows the status while handlers of atexit run.
    global _status
    if threading.current_thread() is threading.main_thread():
        _status = status
    _exit(status)


def install() -> None:
    """Note from here on with which status the script exits. Called by init(), whose handler of atexit comes first."""
    global _installed, _status
    _status = None
    if not _installed:
        _installed = True
        sys.exit = _exit_noted
        atexit.register(_note_exit)


def _note_exit() -> None:
    global _exiting
    _exiting = True


def exiting() -> bool:
    """Whether the script has ended, so that no other world follows."""
    return _exiting


def status() -> int:
    """Return the exit status of a script that ended by sys.exit(); 0 before and without."""
    if not _exiting or _status is None:
        return 0
    return _status & 0xFF if isinstance(_status, int) else 1


def failed() -> bool:
    """Whether this rank leaves by an exception, or with a status that says so: nobody must wait for it then."""
    if _exiting:
        return _status not in (None, 0) or hasattr(sys, "last_type")
    error = sys.exc_info()[1]  # of a handler or a finally around shutdown()
    return error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0))


def resetting() -> bool:
    """Whether elastic training shuts down to begin anew, with other ranks maybe: nobody is through."""
    frame = sys._getframe()
    while (caller := frame.f_back) is not None:
        frame = caller
        if frame.f_code.co_name.endswith("reset") and str(frame.f_globals.get("__name__", "")).startswith("horovod."):
            return True
    return False
