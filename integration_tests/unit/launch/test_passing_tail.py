"""Last lines of a command whose two streams arrive interleaved."""

from __future__ import annotations

from paceline.launch.passing import _Tail

TRACEBACK = (
    "Traceback (most recent call last):\n",
    '  File "/home/user/train.py", line 7, in <module>\n',
    '    raise ValueError("on purpose")\n',
    "ValueError: on purpose\n",
)


def test_output_within_a_traceback_is_not_the_error() -> None:
    tail = _Tail()
    for piece in TRACEBACK[:3]:
        tail.shown(piece.encode(), True)
    tail.shown(b"REPORT 1\n", False)
    tail.shown(TRACEBACK[3].encode(), True)
    ended = tail.ended(1, False)
    assert ended.failed is not None and ended.failed.error == "ValueError: on purpose"
    assert ended.tail == ["".join(one).rstrip() for one in (*TRACEBACK[:3], "REPORT 1", TRACEBACK[3])]


def test_a_traceback_on_standard_output_is_found() -> None:
    tail = _Tail()
    for piece in TRACEBACK:
        tail.shown(piece.encode(), False)
    ended = tail.ended(1, False)
    assert ended.failed is not None and ended.failed.place == "/home/user/train.py, line 7"
