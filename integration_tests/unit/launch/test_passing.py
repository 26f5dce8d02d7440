"""A command whose output passes through: it comes by lines, and at once where a line has no end."""

from __future__ import annotations

import io
import sys
import time

import pytest

from paceline.launch import passing


class _Recorder(io.BytesIO):
    """Standard output that remembers each write, and when it came."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[bytes, float]] = []

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if data:
            self.writes.append((bytes(data), time.monotonic()))
        return len(data)


def run(script: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[bytes, float]], int]:
    recorder = _Recorder()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(recorder))
    command = passing.Command([sys.executable, "-uc", script], {"PATH": "/usr/bin:/bin"})
    ended = command.wait(lambda: False)
    return recorder.writes, ended.code


def test_a_line_comes_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "LINE_LIMIT_S", 5.0)
    script = "import os, time\nfor word in (b'a', b'b', b'c\\nd', b'e\\n'): os.write(1, word); time.sleep(0.2)"
    writes, code = run(script, monkeypatch)
    assert ([data for data, _ in writes], code) == ([b"abc\n", b"de\n"], 0)


def test_what_has_no_end_of_line_is_shown_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os, time\nos.write(1, b'10%'); time.sleep(2); os.write(1, b'20%'); raise SystemExit(3)"
    writes, code = run(script, monkeypatch)
    assert ([data for data, _ in writes], code) == ([b"10%", b"20%"], 3)
    (_, first_s), (_, second_s) = writes
    assert second_s - first_s > 0.5
