"""Fixtures of the command's tests."""

from __future__ import annotations

import os

import pytest

from paceline import config


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(config.PREFIX)]:
        monkeypatch.delenv(name)
