"""Errors of this package that a user can correct."""

from __future__ import annotations

from paceline.errors import UsageError as UsageError
