"""Guard that ends all stages when one of them raises."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator

from paceline.errors import UsageError
from paceline.native.communicator import CommunicatorError
from paceline.stages.execution.posting import Communicator


class Guard:
    """Guard of one pipeline on one stage, whose name in errors is `who`.

    `ended`: why the pipeline has ended; "" while it has not. `doing`: describes the current work for errors.
    """

    def __init__(self, communicator: Communicator) -> None:
        self.ended = ""
        self.doing: Callable[[], str] = lambda: "while it was built"
        self.who = f"stage {communicator.rank}"
        self._communicator = communicator
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
            if not isinstance(error, CommunicatorError):
                where = f"{self.who.capitalize()} failed, {self.doing()}."
                # The communicator may have failed already; then only this error is raised.
                with contextlib.suppress(CommunicatorError):
                    self._communicator.notify_failure(f"{where}\n{traceback.format_exc()}")
            raise

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Return a context whose errors are raised on all ranks before anything has changed: the pipeline continues."""
        try:
            yield
        except CommunicatorError:
            raise
        except Exception as error:
            self._refusal = error
            raise
