"""Fixtures of the tests about building Horovod."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline import config
from paceline.horovod.archive import fetch


@pytest.fixture
def settings(tmp_path: Path) -> config.Settings:
    """A separate cache, which does not exist yet."""
    return config.read({"PACELINE_CACHE_DIR": str(tmp_path / "cache")})


@pytest.fixture
def with_archive(settings: config.Settings) -> config.Settings:
    """A separate cache that contains the archive."""
    settings.cache_dir.mkdir()
    archive = fetch(config.read().cache_dir)
    (settings.cache_dir / archive.name).symlink_to(archive)
    return settings


@pytest.fixture
def without_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """pip finds only the contents of this folder."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "links").mkdir()
    for name, value in (("CONFIG_FILE", os.devnull), ("NO_INDEX", "1"), ("FIND_LINKS", str(tmp_path / "links"))):
        monkeypatch.setenv(f"PIP_{name}", value)
    return tmp_path / "links"
