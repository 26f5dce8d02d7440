"""The error for what the user can mend.

These modules also serve where Paceline itself is not installed; where it is, its own error class is used, so that a
script can catch one class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.errors import UserError
else:
    try:
        from paceline.errors import UserError
    except ImportError:

        class UserError(ValueError):
            """What is wrong (`problem`) and what to do about it (`remedy`)."""

            def __init__(self, problem: str, remedy: str) -> None:
                super().__init__(f"{problem}\n{remedy}")
                self.problem = problem
                self.remedy = remedy


__all__ = ["UserError"]
