"""The errors of this package that the user can mend."""

from __future__ import annotations

from paceline.errors import UsageError as UsageError
