"""An error of the user's that nobody caught ends a script with two lines in place of a traceback."""

from __future__ import annotations

import contextlib
import io
import sys
from types import TracebackType

from paceline.errors import UserError
from paceline.telling import tell

BEGINNING = "Error in "
# Whose frames say nothing to the user.
_LIBRARIES = frozenset({"paceline", "horovod", "torch", "tensorflow", "keras", "importlib", "runpy"})


def _where(trace: TracebackType | None) -> str:
    """The innermost line of the user's own."""
    found = ""
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _LIBRARIES:
            found = f"{frame.f_code.co_filename}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return found or "Paceline"


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, UserError):
        # In one piece: Horovod's threads write to standard error at the same time, as its connections end.
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            sys.__excepthook__(kind, error, trace)
        sys.stderr.write(shown.getvalue())
        return
    tell(f"{BEGINNING}{_where(trace)}: {error.problem}")
    tell(error.remedy)


def install() -> None:
    """From here on, unless somebody else shows what is not caught."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show
