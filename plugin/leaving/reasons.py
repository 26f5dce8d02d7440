"""Reason that this rank leaves: the end of its script, a failure, or an elastic reset."""

from __future__ import annotations

import atexit
import sys
import threading
from _sitebuiltins import Quitter
from typing import Any, NoReturn

_exit = sys.exit
_quit = Quitter.__call__  # exit() and quit(), which do not call sys.exit()
_installed = False
_exiting = False
_status: Any = None  # argument of sys.exit()


def _exit_noted(status: Any = None, /) -> NoReturn:
    _note(status)
    _exit(status)


def _quit_noted(self: Quitter, code: Any = None) -> NoReturn:
    _note(code)
    _quit(self, code)


def _note(status: Any) -> None:
    # Python does not expose the status to atexit handlers.
    global _status
    if threading.current_thread() is threading.main_thread():
        _status = status


def install() -> None:
    """Record the status of sys.exit(), exit() and quit() from here on. That of `raise SystemExit` stays unknown.

    Each init() calls it after registering Horovod's atexit handler once more. The handler that is registered last runs
    first, and this module's must run before Horovod's.
    """
    global _installed, _status
    _status = None
    if not _installed:
        _installed = True
        sys.exit = _exit_noted
        Quitter.__call__ = _quit_noted  # type: ignore[method-assign]
    atexit.unregister(_note_exit)
    atexit.register(_note_exit)


def _note_exit() -> None:
    global _exiting
    _exiting = True


def exiting() -> bool:
    """Return True if the script has ended, so that no other world follows."""
    return _exiting


def status() -> int:
    """Return the exit status of a script that ended by sys.exit(); 0 before the end and without a status."""
    if not _exiting or _status is None:
        return 0
    return _status & 0xFF if isinstance(_status, int) else 1


def failed() -> bool:
    """Return True if this rank leaves by an exception or with a failure status: no rank must wait for it then."""
    if _exiting:
        return _status not in (None, 0) or hasattr(sys, "last_type")
    error = sys.exc_info()[1]  # in an except or finally block around shutdown()
    return error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0))


def error() -> BaseException | None:
    """Return the exception by which this rank leaves; None if its script ended."""
    if not _exiting:
        return sys.exc_info()[1]
    # Of sys.exit() the interpreter keeps no exception.
    return SystemExit(_status) if _status not in (None, 0) else getattr(sys, "last_value", None)


def resetting() -> bool:
    """Return True if elastic training shuts down to restart, maybe with other ranks: no rank has finished."""
    frame = sys._getframe()
    while (caller := frame.f_back) is not None:
        frame = caller
        if frame.f_code.co_name.endswith("reset") and str(frame.f_globals.get("__name__", "")).startswith("horovod."):
            return True
    return False
