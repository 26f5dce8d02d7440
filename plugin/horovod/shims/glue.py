"""Calls from Horovod's Python code when a world begins, ends or fails to begin.

`library` is Horovod's shared library of one framework, opened by ctypes. If no variable or import requests Paceline,
these calls have no effect.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
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
    """Ranks could not connect.

    A ValueError, as in Horovod, and a HorovodInternalError, which elastic training catches.
    """


_TEXT_BYTES = 1 << 16
_WAITED_FOR = re.compile(r"Wait timeout after (\d+) seconds for key\(s\): (\d+(?:, \d+)*)")


def _attach() -> ModuleType | None:
    if above.LIFECYCLE in sys.modules or variables.given():
        return above.module(above.LIFECYCLE)
    return None


class _Caller(NamedTuple):
    """The process that called init()."""

    pid: int


def is_forked(library: ctypes.CDLL) -> bool:
    """Return True in a child of the process that called init(): it has no background thread to end."""
    caller = process(library).find(_Caller)
    return caller is not None and caller.pid != os.getpid()


def before_init(library: ctypes.CDLL) -> None:
    """Pass this process's options to the library, before its background thread starts."""
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
    """Report errors in the settings, now that the ranks are connected."""
    attach = sys.modules.get(above.LIFECYCLE)
    if attach is not None:
        attach.after_init(library)


def before_shutdown(library: ctypes.CDLL) -> None:
    """Collect the library's record, while this rank still has its number."""
    host_staging.settle()
    attach = sys.modules.get(above.LIFECYCLE)
    if attach is not None:
        attach.before_shutdown(library)


def init_failed(library: ctypes.CDLL) -> None:
    """Raise the error that ended the initialisation; a later init() starts afresh."""
    reason, why = _text(library.horovod_paceline_connect_error), _why_failed(library)
    report = _text(library.horovod_paceline_settings_report)
    library.horovod_shutdown()
    if report:
        raise UserError(*report.rsplit("\n", 1))
    environ = variables.environ()
    rank, size = environ.get("HOROVOD_RANK", "0"), environ.get("HOROVOD_SIZE", "1")
    if reason:
        raise ConnectError(
            f"Rank {rank} of {size} could not connect to the other ranks: {_missing(reason)}{reason}\n"
            "Check that every rank is alive, that hosts can reach each other on the interface HOROVOD_GLOO_IFACE="
            f"{environ.get('HOROVOD_GLOO_IFACE', '(automatic)')}, and that HOROVOD_GLOO_TIMEOUT_SECONDS="
            f"{environ.get('HOROVOD_GLOO_TIMEOUT_SECONDS', '30')} is long enough for all ranks to start."
        )
    if why:
        raise ConnectError(f"Rank {rank} of {size} could not set up Horovod: {why}")


def _missing(reason: str) -> str:
    """Return which ranks Gloo waited for: the keys of its rendezvous are their numbers."""
    found = _WAITED_FOR.search(reason)
    if found is None:
        return ""
    return "; ".join(f"rank {one} has not connected within {found[1]} s" for one in found[2].split(", ")) + ". "


def _why_failed(library: ctypes.CDLL) -> str:
    return _text(library.horovod_paceline_why_failed)


def _text(entry: Any) -> str:
    """Return the text that an entry point writes."""
    out = ctypes.create_string_buffer(_TEXT_BYTES)
    entry(out, ctypes.c_int64(_TEXT_BYTES))
    return out.value.decode(errors="replace")


@contextlib.contextmanager
def explained(library: ctypes.CDLL) -> Iterator[None]:
    """Return a context that raises the error that ended the world in place of Horovod's own ValueError."""
    if is_forked(library):
        raise ConnectError(_why_failed(library))  # nobody would answer
    try:
        yield
    except ValueError as error:
        why = _why_failed(library)
        if not why:
            raise
        raise ConnectError(why) from error


def check_process_set(ranks: Sequence[int], size: int) -> None:
    """Raise ValueError, on any rank, if no process set of a world of `size` ranks can consist of `ranks`."""
    unknown = sorted({rank for rank in ranks if not 0 <= rank < size})
    if unknown:
        raise ValueError(f"Process set {list(ranks)}: expected ranks from 0 to {size - 1}, found {unknown}.")
    if len(set(ranks)) < len(ranks):
        raise ValueError(f"Process set {list(ranks)}: expected every rank once, found some more often.")


def name_on(process_set: Any, name: str) -> str:
    """Return the name of an operation on this process set, with a suffix unless it is the global one."""
    return f"{name}_set{process_set.process_set_id}" if process_set.process_set_id else name
