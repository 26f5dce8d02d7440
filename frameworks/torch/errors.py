"""The errors of this package that the user can put right."""

from __future__ import annotations

from paceline.errors import UsageError as UsageError
