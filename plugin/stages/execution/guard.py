"""What is raised on one stage ends all of them."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator

from paceline.errors import UsageError
from paceline.native.mail import MailError
from paceline.stages.execution.posting import Mail


class Guard:
    """Of one pipeline on one stage, which errors call `who`. `ended`: why it has ended; "" while it has not. `doing`:
    where errors come from.
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
        """Whatever is raised within ends this pipeline, on all ranks, but for what was `refusing`.

        One within another is the same as one.
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
                # The mail may be at its end already; this error is the one to be told.
                with contextlib.suppress(MailError):
                    self._mail.alarm(f"{where}\n{traceback.format_exc()}")
            raise

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Around what raises on all ranks if it does on one, before anything has changed: the pipeline goes on."""
        try:
            yield
        except MailError:
            raise
        except Exception as error:
            self._refusal = error
            raise
