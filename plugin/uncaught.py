"""Handler of uncaught errors, which reports them to the launcher and prints a UserError as two lines."""

from __future__ import annotations

import contextlib
import io
import sys
from types import TracebackType

from paceline.errors import UserError
from paceline.failure import consequences, excerpt, reports
from paceline.log import log


def report(error: BaseException) -> reports.Failed:
    """Return the report of an error for the launcher."""
    follows, place = consequences.of(error), excerpt.place(error.__traceback__)
    if isinstance(error, UserError):
        return reports.Failed(error.problem, place or "Paceline", [], error.remedy, follows)
    return reports.Failed(excerpt.headline(error), place, excerpt.lines(error), follows=follows)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if reports.asked():
        reports.send(report(error))
    if isinstance(error, UserError):
        log(f"Error in {excerpt.place(trace) or 'Paceline'}: {error.problem}")
        log(error.remedy)
        return
    # In one write: Horovod's threads write to standard error at the same time, as its connections end.
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        sys.__excepthook__(kind, error, trace)
    sys.stderr.write(shown.getvalue())


def install() -> None:
    """Install the handler, unless another one replaced sys.excepthook."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show
