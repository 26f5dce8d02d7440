"""Why this rank leaves: in order, or because something failed."""

from __future__ import annotations

import atexit
import sys
import threading
from typing import Any, NoReturn

_exit = sys.exit
_installed = False
_exiting = False
_failed = False
_status = 0


def _exit_noted(status: Any = None, /) -> NoReturn:
    # Nothing else knows the status while handlers of atexit run.
    global _failed, _status
    if threading.current_thread() is threading.main_thread():
        _failed = status not in (None, 0)
        _status = status & 0xFF if isinstance(status, int) else int(_failed)
    _exit(status)


def install() -> None:
    """Note from here on with which status the script exits. Called by init(), whose handler of atexit comes first."""
    global _installed, _failed
    _failed = False
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
    """The exit status of a script that ended by sys.exit(), and 0 before and without."""
    return _status if _exiting else 0


def failed() -> bool:
    """Whether this rank leaves by an exception, or with a status that says so: nobody must wait for it then."""
    if _exiting:
        return _failed or hasattr(sys, "last_type")
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
