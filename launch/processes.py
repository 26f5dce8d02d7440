"""Runs a command to its end, or ends it, and leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from paceline.errors import UserError
from paceline.launch import console, interrupts

# How long a command that was asked to end may take before it is made to.
GRACE_S = 10.0
# How long a wait lasts before we look at what has happened in between.
SLICE_S = 0.2
CHUNK_BYTES = 1 << 16
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_ENDS = re.compile(rb"(\r\n|\n|\r(?=.))", re.DOTALL)  # a carriage return at the end may be half of a line's end


def dying_with_parent(number: int) -> Callable[[], None] | None:
    """Return a preexec_fn for Popen: the process gets signal `number` when its parent dies, however that is.

    None where the system has no such thing.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(_DIE_WITH_PARENT, number)

    return ask


def call(
    words: Sequence[str],
    environ: Mapping[str, str],
    on_line: Callable[[str], None] | None = None,
    limit_s: float | None = None,
    on_pieces: tuple[Callable[[str], None], Callable[[str], None]] | None = None,
) -> int:
    """Run a command to its end and return its exit code (128 + n where signal n ended it).

    `on_line` gets every line of its standard output and standard error, without the end of line; `on_pieces` get one of
    these each, as it comes: up to a carriage return or the end of a line, with it. Else both go where ours go. When we
    are asked to end (Ctrl-C, a termination request, the end of the terminal) or `limit_s` seconds have passed, the
    command is asked to end, then after GRACE_S made to. Raises KeyboardInterrupt for the one, UserError for the other.
    """
    out = None if on_line is None and on_pieces is None else subprocess.PIPE
    err = subprocess.STDOUT if on_line is not None else out
    with interrupts.held():
        # A session of its own: Ctrl-C reaches us alone, and everyone in it can be ended.
        process = subprocess.Popen(
            words,
            env=dict(environ),
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=dying_with_parent(signal.SIGTERM),  # horovodrun ends its ranks then
        )
        readers = []
        if on_line is not None:
            readers = [threading.Thread(target=_read_lines, args=(process, on_line), daemon=True)]
        elif on_pieces is not None:
            streams = zip((process.stdout, process.stderr), on_pieces, strict=True)
            readers = [threading.Thread(target=_read_pieces, args=each, daemon=True) for each in streams]
        try:
            for reader in readers:
                reader.start()
            code = _wait(process, limit_s)
        finally:
            end(process)
            for reader in readers:
                reader.join(GRACE_S)
        interrupts.check()
    return code if code >= 0 else 128 - code


def _read_lines(process: subprocess.Popen[bytes], on_line: Callable[[str], None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        on_line(line.decode(errors="replace").rstrip("\r\n"))


def _read_pieces(stream: IO[bytes], on_piece: Callable[[str], None]) -> None:
    rest = b""
    while chunk := stream.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
        *pieces, rest = _ENDS.split(rest + chunk)
        for text, end in zip(pieces[::2], pieces[1::2], strict=True):
            on_piece((text + end).decode(errors="replace"))
    if rest:
        on_piece(rest.decode(errors="replace"))


def _wait(process: subprocess.Popen[bytes], limit_s: float | None) -> int:
    """The exit code. Raises KeyboardInterrupt if we are asked to end, UserError after `limit_s`."""
    end_s = None if limit_s is None else time.monotonic() + limit_s
    while True:
        # In slices, because a signal between a look at what was noted and a blocking call would not end that call.
        left_s = SLICE_S if end_s is None else min(SLICE_S, end_s - time.monotonic())
        try:
            return process.wait(max(0.0, left_s))
        except subprocess.TimeoutExpired as error:
            interrupts.check()
            if left_s <= 0:
                raise UserError(
                    f"{shlex.join(error.cmd)} did not end within {limit_s:g} s and was stopped.",
                    "Look at the last lines above: a rank that waits names the tensor and the ranks it waits for.",
                ) from None


def end(process: subprocess.Popen[bytes], grace_s: float = GRACE_S) -> None:
    """Leave nothing of `process` behind, which leads a session: ask it to end, then end what is left of its session.

    A second Ctrl-C cuts the time short that it may take.
    """
    if process.poll() is None:
        process.terminate()
        before, end_s = max(1, interrupts.count()), time.monotonic() + grace_s
        while process.poll() is None and interrupts.count() <= before and time.monotonic() < end_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SLICE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:  # it hangs in the system, in a disk that does not answer for example
        console.note(f"Process {process.pid} was killed and has not ended {GRACE_S:g} s later; it is left behind.")
