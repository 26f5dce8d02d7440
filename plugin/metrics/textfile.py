"""Files of hvd.metrics() for the textfile collector of Prometheus' node_exporter: one for each rank."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from paceline import config
from paceline.log import log
from paceline.metrics.values import Metric, collect
from paceline.native.library import library_name
from paceline.native.world import process
from paceline.record.kept import keep_steps
from paceline.registry import making


def render(metrics: Iterable[Metric], labels: Mapping[str, str]) -> str:
    """Return the text exposition format: HELP and TYPE of each name, then its samples, all with `labels`."""
    lines: list[str] = []
    described: set[str] = set()
    for one in metrics:
        if one.name not in described:
            described.add(one.name)
            lines += [f"# HELP {one.name} {_escaped(one.meaning)}", f"# TYPE {one.name} {one.kind}"]
        pairs = ",".join(f'{name}="{_escaped(text, True)}"' for name, text in {**labels, **one.labels}.items())
        lines.append(f"{one.name}{{{pairs}}} {one.value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str, quoted: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quoted else text


class Textfile:
    """Writes the file of this rank every few seconds, in a thread, from `begin` to `end` of each world."""

    def __init__(self, library: ctypes.CDLL, folder: Path, interval_s: float) -> None:
        self._library, self._folder, self._interval_s = library, folder, interval_s
        self._lock = threading.Lock()  # protects everything below, and the world while its numbers are read
        self._path: Path | None = None
        self._running = self._failed = False
        self._process = 0

    def begin(self) -> None:
        """Start to write at the beginning of a world."""
        with self._lock:
            self._running = True
            if self._process != os.getpid():  # no thread yet, or in the process that forked this one
                self._process = os.getpid()
                threading.Thread(target=self._run, daemon=True, name="paceline metrics").start()

    def end(self) -> None:
        """Write the last numbers of a world that is about to end."""
        if self._process == os.getpid():
            self._write()
            with self._lock:
                self._running = False

    def _run(self) -> None:
        while True:
            time.sleep(self._interval_s)
            self._write()

    def _write(self) -> None:
        with self._lock:
            if not self._running:
                return
            rank = int(self._library.horovod_rank())
            path = self._folder / f"paceline_rank{rank}.prom"
            try:
                self._replace(path)
            except Exception as error:  # numbers are not worth a training
                if not self._failed:
                    log(
                        f"rank {rank} expected to write its metrics to {path}, found {type(error).__name__}: {error}. "
                        "Training goes on. Make the folder of PACELINE_METRICS on every host, with room in it."
                    )
                self._failed = True

    def _replace(self, path: Path) -> None:
        labels = {
            "rank": str(self._library.horovod_rank()),
            "size": str(self._library.horovod_size()),
            "library": library_name(self._library),
            "exchange": making.used() or config.settings().exchange,
        }
        # Readers take names that end with .prom, and see whole files.
        written = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            written.write_text(render(collect(self._library), labels))
            written.replace(path)
        finally:
            written.unlink(missing_ok=True)
        if self._path not in (None, path):  # an elastic job has given this rank another number
            self._path.unlink(missing_ok=True)
        self._path = path


def begin(library: ctypes.CDLL, settings: config.Settings, recorded: bool) -> None:
    """Start the file of this rank if the settings request it. `recorded`: a trace already records steps."""
    if settings.metrics is not None:
        keep_steps(library, recorded)
        made = process(library).of(Textfile, lambda: Textfile(library, settings.metrics, settings.metrics_interval_s))
        made.begin()


def end(library: ctypes.CDLL) -> None:
    """Write the last numbers before the world of `library` ends."""
    written = process(library).find(Textfile)
    if written is not None:
        written.end()
