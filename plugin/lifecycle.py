"""What Paceline does in a process when a world of Horovod begins and ends.

`paceline.horovod.shims.glue` calls `before_init` and `before_shutdown`.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from pathlib import Path

from paceline import config
from paceline.arguments import exchange_asked
from paceline.errors import UserError
from paceline.exchange.worlds import new_world
from paceline.native.library import begin_world, library_name
from paceline.native.prototypes import declare
from paceline.record.snapshot import take
from paceline.record.trace import part_path, write
from paceline.registry.collectives import COLLECTIVES

# How long a rank that ends waits for its gradients in flight.
SHUTDOWN_LIMIT_S = 60.0
INTERFACE = 2  # bridge/c_api.cc: horovod_paceline_interface

# Where the trace of a recorded library goes, by the library's handle.
_recordings: dict[int, Path] = {}


def before_init(library: ctypes.CDLL) -> None:
    """Read this process's options and hand them to `library`. Raises UserError for options that cannot be used."""
    settings = config.read()
    found = library.horovod_paceline_interface()
    if found != INTERFACE:
        from paceline.horovod.check import REMEDY

        raise UserError(f"Horovod's library speaks interface {found} of Paceline, expected {INTERFACE}.", REMEDY)
    declare(library)
    if "fusion" in settings.given() or "paceline.fusion.control" in sys.modules:
        from paceline.fusion import control

        control.begin(library, settings)
    # A second init() without shutdown() in between does nothing, to what is in flight neither.
    if not library.horovod_is_initialized():
        begin_world(library)
        new_world(library)
    library.horovod_paceline_collective(COLLECTIVES[settings.collective][0], settings.collective_block_bytes)
    if not exchange_asked(None).synchronous:
        _exchange_in_unmodified_scripts(library, settings.exchange)
    if settings.record is not None and library._handle not in _recordings:
        library.horovod_paceline_record_start(settings.record_steps)
        _recordings[library._handle] = settings.record


def _exchange_in_unmodified_scripts(library: ctypes.CDLL, exchange: str) -> None:
    """PACELINE_EXCHANGE holds for scripts that use Horovod's module, too: its wrapper becomes ours.

    `exchange`: its value. Raises UserError where Keras 2 is in use.
    """
    # Adapters are found by the name of their library: nothing here knows them.
    adapter = f"paceline.{library_name(library)}.unmodified"
    if library_name(library) == "tensorflow" and os.environ.get("TF_USE_LEGACY_KERAS", "0") not in ("", "0"):
        raise UserError(
            f"PACELINE_EXCHANGE={exchange} is set together with TF_USE_LEGACY_KERAS: optimizers of Keras 2 cannot "
            "leave out an update.",
            "Unset PACELINE_EXCHANGE, or use Keras 3.",
        )
    importlib.import_module(adapter).install()


def before_shutdown(library: ctypes.CDLL) -> None:
    """Let gradients in flight arrive, and write what was recorded so far; called at each shutdown.

    A later shutdown overwrites what an earlier one wrote. Whoever ends while its last gradient travels would take it
    from the other ranks.
    """
    if library.horovod_is_initialized():
        library.horovod_paceline_pipelined_settle_all(SHUTDOWN_LIMIT_S)
    record = _recordings.get(library._handle)
    # After shutdown() a rank has no number any more, and everything was written then.
    if record is not None and library.horovod_is_initialized():
        trace = take(library)
        if trace.steps:
            path = part_path(record, trace.rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            write(trace, path)
