"""Guard that ends all stages when one of them raises."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator

from paceline.errors import UsageError
from paceline.native.mail import MailError
from paceline.stages.execution.posting import Mail


class Guard:
    """Guard of one pipeline on one stage, whose name in errors is `who`.

    `ended`: why the pipeline has ended; "" while it has not. `doing`: describes the current work for errors.
    """

    def __init__(self, mail: Mail) -> None:
        self.ended = ""
        self.doing: Callable[[], str] = lambda: "while it was built"
        self.who = f"stage {mail.rank}"
        self._mail = mail
        # An error that all ranks raise, before anything has changed.
        self._refusal: BaseException | None = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Return a context in which any error ends this pipeline on all ranks, except errors within `refusing`.

        Contexts may be nested.
        """
        if self.ended:
            raise UsageError(
                f"The pipeline of {self.who} has ended: {self.ended}",
                "Build another one, from the last state that was saved.",
            )
        try:
            yield
        except BaseException as error:
            if self.ended or error is self._refusal:
                raise
            self.ended = f"{type(error).__name__}: {error}".splitlines()[0]
            if not isinstance(error, MailError):
                where = f"{self.who.capitalize()} failed, {self.doing()}."
                # The mail may have failed already; then only this error is raised.
                with contextlib.suppress(MailError):
                    self._mail.alarm(f"{where}\n{traceback.format_exc()}")
            raise

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Return a context whose errors are raised on all ranks before anything has changed: the pipeline continues."""
        try:
            yield
        except MailError:
            raise
        except Exception as error:
            self._refusal = error
            raise
