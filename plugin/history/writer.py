"""Files of a history: each process appends records to its own file, FOLDER/history-RANK.jsonl."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from paceline.history.records import Ended, Record, World
from paceline.log import log
from paceline.native.agreement import everyone
from paceline.native.library import library_name
from paceline.native.world import process, world

PATTERN = "history-*.jsonl"
_BUFFER_BYTES = 1 << 20
_REMEDY = "Set PACELINE_HISTORY on all ranks."


class _Number:
    """Number of the current world; equal on all ranks."""

    number = 0


class History:
    """The file of this process. Whole lines reach it when `flush` is called, at the end of each step."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder = folder
        self._lock = threading.Lock()  # gradients come from threads of the backward pass
        self._encoder = msgspec.json.Encoder()
        self._process = os.getpid()
        self._failed = False
        self._rank = rank
        self._file: BinaryIO | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _created(folder, rank)
        except OSError as error:
            self._fail(error)

    def write(self, record: Record) -> None:
        """Append a record. An error of the disk ends the history, not the training."""
        with self._lock:
            if self._file is None or self._process != os.getpid():  # or in a process that this one has forked
                return
            try:
                self._file.write(self._encoder.encode(record) + b"\n")
            except OSError as error:
                self._fail(error)

    def flush(self) -> None:
        """Pass everything written so far to the system, so that it survives the end of this process."""
        with self._lock:
            if self._file is None or self._process != os.getpid():
                return
            try:
                self._file.flush()
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._file = None
        log(
            f"rank {self._rank} expected to write its history, found {type(error).__name__}: {error}. Training goes "
            "on. Make the folder of PACELINE_HISTORY on every host, with room in it."
        )


def _created(folder: Path, rank: int) -> BinaryIO:
    """Open a file that no other process has: a rank of an elastic job may follow one with the same number."""
    for number in itertools.count(1):
        path = folder / f"history-{rank}{f'-{number}' if number > 1 else ''}.jsonl"
        try:
            return path.open("xb", buffering=_BUFFER_BYTES)
        except FileExistsError:
            continue
    raise AssertionError


def begin(library: ctypes.CDLL, folder: Path) -> None:
    """Begin to write at the beginning of a world. Waits for all ranks."""
    if world(library).find(_Number) is not None:  # a second init()
        return
    rank, size = int(library.horovod_rank()), int(library.horovod_size())
    history = process(library).find(History)
    if history is None or history.folder != folder:
        history = process(library).put(History(folder, rank))
    now_us = time.time_ns() // 1000
    named = world(library).of(_Number)
    named.number = everyone(library, "paceline.history", [now_us], _REMEDY)[0][0] if size > 1 else now_us
    history.write(World(named.number, rank, size, library_name(library), os.getpid()))
    history.flush()


def number_of_world(library: ctypes.CDLL) -> int:
    """Return the number of the current world; 0 before `begin`."""
    return world(library).of(_Number).number


def end(library: ctypes.CDLL, failed: bool) -> None:
    """Write that the world ends."""
    history, named = process(library).find(History), world(library).find(_Number)
    if history is not None and named is not None and named.number:
        history.write(Ended(named.number, failed))
        history.flush()
        named.number = 0
