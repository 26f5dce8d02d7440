"""What of a traceback is shown: at most 20 lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from paceline import uncaught
from paceline.failure import excerpt


def raised(function: Callable[..., Any], *values: Any) -> Exception:
    try:
        function(*values)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def deep(level: int) -> None:
    if level:
        deep(level - 1)
    raise KeyError("line 1\nof two")


def test_long_traceback_is_cut_to_the_innermost_frames() -> None:
    found = excerpt.lines(raised(deep, 99))
    assert found[0].endswith("frames left out)")
    assert found[-1].startswith("KeyError: ") and "in deep" in found[-3]
    assert len(found) <= 20


def test_frames_of_libraries_are_left_out() -> None:
    error = raised(json.loads, "{")
    found = excerpt.lines(error)
    assert [line.split()[-1] for line in found if line.startswith("  File")] == ["raised"]
    assert "  (3 frames left out)" in found
    assert found[-1] == excerpt.headline(error)
    assert excerpt.place(error.__traceback__).startswith(f"{__file__}, line ")


def test_long_message_is_cut() -> None:
    text = "\n".join(map(str, range(99)))
    found = excerpt.lines(raised(lambda: (_ for _ in ()).throw(ValueError(text))))
    assert found[-5:] == ["ValueError: 0", "1", "2", "3", "4"]


def test_error_of_the_users_is_reported_with_its_remedy() -> None:
    from paceline.errors import UserError

    def fail() -> None:
        raise UserError("exchange='x' is not known.", "Use sync.")

    report = uncaught.report(raised(fail))
    assert (report.error, report.remedy, report.lines, report.follows) == (
        "exchange='x' is not known.", "Use sync.", [], "",
    )  # fmt: skip
    assert report.place.startswith(f"{__file__}, line ")
