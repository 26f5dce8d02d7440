"""Run a command to its end, or end it, leaving no process behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
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

# Time for a command to end on request before it is killed.
GRACE_S = 10.0
# Longest wait between two checks.
SLICE_S = 0.2
CHUNK_BYTES = 1 << 16
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_ENDS = re.compile(rb"(\r\n|\n|\r(?=.))", re.DOTALL)  # a carriage return at the end may be half of an end of line


def dying_with_parent(number: int) -> Callable[[], None] | None:
    """Return a preexec_fn for Popen that sends the process signal `number` when its parent dies for any reason.

    None if the system does not support it.
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
    *on_pieces: Callable[[str], None],
    limit_s: float | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> int:
    """Run a command to its end and return its exit code (128 + n if signal n ended it).

    `enough` is called several times a second; when it returns True, the command is ended and 0 returned.

    `on_pieces`: one callback gets standard output and standard error, two get one of them each; without, both go to our
    own streams. A piece ends with an end of line or a carriage return. On a request to end (Ctrl-C, a termination
    request, a closed terminal) or after `limit_s` seconds, the command is asked to end, and killed after GRACE_S.
    Raises KeyboardInterrupt for a request, UserError for the limit.
    """
    with interrupts.held():
        # An own session: Ctrl-C reaches only us, and all its processes can be ended.
        process = subprocess.Popen(
            words,
            env=dict(environ),
            stdout=subprocess.PIPE if on_pieces else None,
            stderr=(None, subprocess.STDOUT, subprocess.PIPE)[len(on_pieces)],
            start_new_session=True,
            preexec_fn=dying_with_parent(signal.SIGTERM),  # horovodrun ends its ranks then
        )
        readers = [
            threading.Thread(target=read, args=(stream, lambda piece, take=take: take(piece.decode(errors="replace"))))
            for stream, take in zip((process.stdout, process.stderr), on_pieces, strict=False)
        ]
        try:
            for reader in readers:
                reader.daemon = True
                reader.start()
            code = _wait(process, limit_s, enough)
        finally:
            end(process)
            for reader in readers:
                reader.join(GRACE_S)
        interrupts.check()
    return code if code >= 0 else 128 - code


def read(stream: IO[bytes], on_piece: Callable[[bytes], None], late_s: float | None = None) -> None:
    """Call `on_piece` with pieces of a stream, up to and including an end of line or a carriage return.

    A piece without such an end comes `late_s` after its beginning, or at the end of the stream.
    """
    rest = b""
    chunk: bytes | None = None
    while chunk != b"":
        if late_s is not None and rest and not select.select([stream], [], [], late_s)[0]:
            on_piece(rest)
            rest = b""
        chunk = os.read(stream.fileno(), CHUNK_BYTES)
        *pieces, rest = _ENDS.split(rest + chunk)
        for text, ending in zip(pieces[::2], pieces[1::2], strict=True):
            on_piece(text + ending)
    if rest:
        on_piece(rest)


def _wait(process: subprocess.Popen[bytes], limit_s: float | None, enough: Callable[[], bool]) -> int:
    """Return the exit code, 0 after `enough`. Raises KeyboardInterrupt on a request to end, UserError at the limit."""
    end_s = None if limit_s is None else time.monotonic() + limit_s
    while True:
        # In slices: a signal just before a blocking call would not end that call.
        left_s = SLICE_S if end_s is None else min(SLICE_S, end_s - time.monotonic())
        try:
            return process.wait(max(0.0, left_s))
        except subprocess.TimeoutExpired as error:
            interrupts.check()
            if enough():
                return 0
            if left_s <= 0:
                raise UserError(
                    f"{shlex.join(error.cmd)} did not end within {limit_s:g} s and was stopped.",
                    "Look at its last lines: a rank that waits names the tensor and the ranks it waits for.",
                ) from None


def end(process: subprocess.Popen[bytes], grace_s: float = GRACE_S) -> None:
    """End `process`, which leads a session: request its end, then kill the rest of its session.

    A second Ctrl-C shortens the time that it may take.
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
    except subprocess.TimeoutExpired:  # it hangs in the system, for example in a disk that does not answer
        console.note(f"Process {process.pid} was killed and has not ended {GRACE_S:g} s later; it is left behind.")
