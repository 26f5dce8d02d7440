"""Calls of our shims from Horovod's init() and shutdown(), and between two worlds of an elastic job."""

from __future__ import annotations

from paceline.horovod.edits import Edit

_BASICS = "horovod/common/basics.py"
_TORCH, _SHUTDOWN = "horovod/torch/mpi_ops.py", "def shutdown(*args, **kwargs):"

LIFECYCLE_EDITS: tuple[Edit, ...] = (
    Edit(
        _BASICS,
        "from horovod.common import util as util",
        "after",
        "from horovod._paceline import glue as _paceline_glue",
    ),
    Edit(_BASICS, "initialization_ok = True", "before", "_paceline_glue.before_init(self.MPI_LIB_CTYPES)"),
    Edit(_BASICS, "_init_process_sets(process_sets)", "after", "_paceline_glue.after_init(self.MPI_LIB_CTYPES)"),
    Edit(
        _BASICS,
        "self.MPI_LIB_CTYPES.horovod_shutdown()",
        "before",
        "if _paceline_glue.is_forked(self.MPI_LIB_CTYPES):\n"
        "    return\n"
        "_paceline_glue.before_shutdown(self.MPI_LIB_CTYPES)",
    ),
    # before_shutdown waits for operations in flight, which needs their handles: they are cleared after it.
    Edit(_TORCH, "mpi_lib.horovod_torch_reset()", "replace", "ended = _basics.shutdown(*args, **kwargs)", _SHUTDOWN),
    Edit(
        _TORCH,
        "return _basics.shutdown(*args, **kwargs)",
        "replace",
        "mpi_lib.horovod_torch_reset()\nreturn ended",
        _SHUTDOWN,
    ),
)

ELASTIC_INTERRUPTS_EDITS: tuple[Edit, ...] = (
    Edit(
        "horovod/common/elastic.py",
        "skip_sync = e.skip_sync",
        "replace",
        "from horovod._paceline import elastic_interrupts\nskip_sync = elastic_interrupts.keep(state) and e.skip_sync",
    ),
)
