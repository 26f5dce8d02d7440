"""Which errors follow from another rank's failure or end."""

from __future__ import annotations

import pytest
from horovod.common.exceptions import HorovodInternalError

from paceline.errors import ranks_lost
from paceline.failure import consequences
from paceline.failure.consequences import END, FAILURE
from paceline.native import mail

SHUT = "Horovod has been shut down. This was caused by an exception on one of the ranks"


def after(cause: Exception, error: Exception) -> Exception:
    """An error that was raised while another one was handled."""
    try:
        try:
            raise cause
        except Exception:
            raise error  # noqa: B904
    except Exception as found:
        return found


@pytest.mark.parametrize(
    ("error", "follows"),
    [
        (ValueError("on purpose"), ""),
        (HorovodInternalError("Rank 2 died"), FAILURE),
        (HorovodInternalError(SHUT), END),
        (RuntimeError(f"UnknownError: {SHUT}"), END),  # TensorFlow's
        (mail.StageFailed("Rank 1 could not go on", 1, "ValueError"), FAILURE),
        (mail.StageLost("Rank 1 died"), FAILURE),
        (mail.HorovodEnded("Horovod was shut down"), END),
        (ranks_lost("Rank 1 is gone.", "See its output."), FAILURE),
        (after(HorovodInternalError(SHUT), KeyError("state")), END),
        (after(ValueError("bad batch"), KeyError("state")), ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_what_an_error_follows_from(error: Exception, follows: str) -> None:
    assert consequences.of(error) == follows


def test_text_of_a_traceback_names_the_class() -> None:
    name = "horovod.common.exceptions.HorovodInternalError"
    assert consequences.of_name(name, f"{name}: {SHUT}") == END
    assert consequences.of_name("ValueError", "ValueError: on purpose") == ""


def test_error_that_is_what_the_library_heard_follows_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consequences, "_heard", lambda: iter(["Rank 2 died: process 1 on host a"]))
    assert consequences.of(RuntimeError("{{node x}} Rank 2 died: process 1 on host a ended [Op:Allreduce]")) == FAILURE
    assert consequences.of(ValueError("on purpose")) == ""
