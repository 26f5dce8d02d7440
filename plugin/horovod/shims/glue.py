"""Where Horovod's Python face tells Paceline that a world begins, ends or could not be made.

`library` is Horovod's shared library of one framework, opened by ctypes. Where nothing of Paceline is asked for, by a
variable or an import, nothing happens here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from horovod.common.exceptions import HorovodInternalError

from paceline import common_settings, variables
from paceline.core import _core
from paceline.errors import UserError
from paceline.horovod import above
from paceline.horovod.shims import host_staging
from paceline.native.world import process


class ConnectError(HorovodInternalError, ValueError):
    """Ranks could not connect. Horovod's own type for this was ValueError; elastic training waits for the other."""


_TEXT_BYTES = 1 << 16


def _attach() -> ModuleType | None:
    if above.LIFECYCLE in sys.modules or variables.given():
        return above.module(above.LIFECYCLE)
    return None


class _Caller(NamedTuple):
    """The process that called init()."""

    pid: int


def is_forked(library: ctypes.CDLL) -> bool:
    """Whether this is a child of the process that called init(): it has no background thread that it could end."""
    caller = process(library).find(_Caller)
    return caller is not None and caller.pid != os.getpid()


def before_init(library: ctypes.CDLL) -> None:
    """Hand this process's options to the library, before its background thread starts."""
    process(library).put(_Caller(os.getpid()))
    operations = sys.modules.get("horovod.torch.mpi_ops")
    if operations is not None:
        host_staging.install(operations)
    found = library.horovod_paceline_interface()
    if found != _core.INTERFACE:
        from paceline.horovod.check import REMEDY

        raise UserError(f"Horovod's library speaks interface {found} of Paceline, expected {_core.INTERFACE}.", REMEDY)
    attach = _attach()
    own = attach.before_init(library) if attach is not None else []
    shared = [common_settings.build(), *own, *common_settings.of_horovod()]
    library.horovod_paceline_settings(common_settings.text(shared).encode())


def after_init(library: ctypes.CDLL) -> None:
    """The ranks have met: what is wrong with what was asked for can be said."""
    attach = sys.modules.get(above.LIFECYCLE)
    if attach is not None:
        attach.after_init(library)


def before_shutdown(library: ctypes.CDLL) -> None:
    """Collect what the library recorded, while this rank still knows its number."""
    host_staging.settle()
    attach = sys.modules.get(above.LIFECYCLE)
    if attach is not None:
        attach.before_shutdown(library)


def init_failed(library: ctypes.CDLL) -> None:
    """Raise what ended the initialisation; a later init() starts afresh."""
    reason, why = _text(library.horovod_paceline_connect_error), _why_failed(library)
    report = _text(library.horovod_paceline_settings_report)
    library.horovod_shutdown()
    if report:
        raise UserError(*report.rsplit("\n", 1))
    environ = variables.environ()
    rank, size = environ.get("HOROVOD_RANK", "0"), environ.get("HOROVOD_SIZE", "1")
    if reason:
        raise ConnectError(
            f"Rank {rank} of {size} could not connect to the other ranks: {reason}\n"
            "Check that every rank is alive, that hosts can reach each other on the interface HOROVOD_GLOO_IFACE="
            f"{environ.get('HOROVOD_GLOO_IFACE', '(automatic)')}, and that HOROVOD_GLOO_TIMEOUT_SECONDS="
            f"{environ.get('HOROVOD_GLOO_TIMEOUT_SECONDS', '30')} is long enough for all ranks to start."
        )
    if why:
        raise ConnectError(f"Rank {rank} of {size} could not set up Horovod: {why}")


def _why_failed(library: ctypes.CDLL) -> str:
    return _text(library.horovod_paceline_why_failed)


def _text(entry: Any) -> str:
    """The text that an entry point writes."""
    out = ctypes.create_string_buffer(_TEXT_BYTES)
    entry(out, ctypes.c_int64(_TEXT_BYTES))
    return out.value.decode(errors="replace")


@contextlib.contextmanager
def explained(library: ctypes.CDLL) -> Iterator[None]:
    """Raise what ended the world in place of Horovod's own ValueError, if that is why a call was refused."""
    try:
        yield
    except ValueError as error:
        why = _why_failed(library)
        if not why:
            raise
        raise ConnectError(why) from error


def check_process_set(ranks: Sequence[int], size: int) -> None:
    """Raise ValueError if no process set of a world of `size` ranks can have these, on whichever rank this is."""
    unknown = sorted({rank for rank in ranks if not 0 <= rank < size})
    if unknown:
        raise ValueError(f"Process set {list(ranks)}: expected ranks from 0 to {size - 1}, found {unknown}.")
    if len(set(ranks)) < len(ranks):
        raise ValueError(f"Process set {list(ranks)}: expected every rank once, found some more often.")


def name_on(process_set: Any, name: str) -> str:
    """The name of an operation on this process set; others than the global one have names of their own."""
    return f"{name}_set{process_set.process_set_id}" if process_set.process_set_id else name
