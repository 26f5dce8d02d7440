"""Modules that the built Horovod imports: what variables request."""

from __future__ import annotations

import pytest

from paceline.horovod.shims import unmodified


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("", False), ("none", False), ("q8", True)])
def test_empty_codec_is_not_a_request(monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool) -> None:
    if value is None:
        monkeypatch.delenv("PACELINE_CODEC", raising=False)
    else:
        monkeypatch.setenv("PACELINE_CODEC", value)
    assert unmodified._codec_asked() is expected
