"""The errors of this package that the user can mend."""

from __future__ import annotations

from paceline.errors import UserError


class UsageError(UserError, ValueError):
    """An argument or an order of calls that cannot work; also a ValueError, as Horovod raises in such places."""
