"""The error for what the user can put right.

These modules also serve where Paceline itself is not installed; where it is, the error is one of its own, so that a
script can catch one class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.errors import UserError as _UserError
else:
    try:
        from paceline.errors import UserError as _UserError
    except ImportError:

        class _UserError(Exception):
            def __init__(self, problem: str, remedy: str) -> None:
                super().__init__(f"{problem}\n{remedy}")
                self.problem = problem
                self.remedy = remedy


class UserError(_UserError, ValueError):
    """What is wrong (`problem`) and what to do about it (`remedy`); a ValueError, as Horovod raises in such places."""
