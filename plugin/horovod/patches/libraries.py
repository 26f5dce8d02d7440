"""Edits of the patch "two-libraries": Horovod for PyTorch and for TensorFlow both work in one process."""

from __future__ import annotations

from paceline.horovod.edits import Edit

_BASICS = "horovod/common/basics.py"
_LINKED = (
    'set(CMAKE_SHARED_LINKER_FLAGS "${{CMAKE_SHARED_LINKER_FLAGS}} '
    '-Wl,--version-script=${{CMAKE_SOURCE_DIR}}/horovod.lds -Wl,{} -Wl,-z,relro,-z,now")'
)

TWO_LIBRARIES_EDITS = (
    # Virtual tables are data, which -Bsymbolic-functions resolves to the library that was loaded first.
    Edit("CMakeLists.txt", _LINKED.format("-Bsymbolic-functions"), "replace", _LINKED.format("-Bsymbolic")),
    # Modules of both libraries share horovod.common.process_sets, which refers to the library imported last.
    Edit(_BASICS, "_init_process_sets(process_sets)", "before", "_setup_process_sets(self)"),
    Edit(
        _BASICS,
        "from horovod.common import util as util",
        "after",
        "from horovod.common.process_sets import _setup as _setup_process_sets",
    ),
)
