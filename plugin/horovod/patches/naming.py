"""Edits that give unnamed operations equal names on every rank, with any process sets."""

from __future__ import annotations

from paceline.horovod.edits import Edit

_TORCH_OPS = "horovod/torch/mpi_ops_v2.cc"
_TENSORFLOW_OPS = "horovod/tensorflow/mpi_ops.py"
_PROCESS_SET = "horovod/common/process_set.cc"

# Lines of the PyTorch operations that request a name, with the function if a line occurs twice.
_TORCH_CALLS: tuple[tuple[str, str | None], ...] = (
    *(
        (f'GetOpName("{kind}", name, handle), {device},', None)
        for kind in ("allreduce", "allgather", "alltoall", "reducescatter")
        for device in ("device", "CPU_DEVICE_ID")
    ),
    ('ready_event_list, GetOpName("broadcast", name, handle),', None),
    ('GetOpName("broadcast", name, handle), CPU_DEVICE_ID,', None),
    *(
        (
            f'auto base_name = GetOpName("grouped_{kind.lower()}", name, handle);',
            f"int DoGrouped{kind}{where}(const std::vector<::torch::Tensor>& tensors,",
        )
        for kind in ("Allreduce", "Allgather", "Reducescatter")
        for where in ("", "CudaOnCPU")
    ),
)

TORCH_NAMES: tuple[Edit, ...] = (
    Edit(_TORCH_OPS, '#include "ready_event.h"', "after", '#include "bridge/patches.h"'),
    Edit(_TORCH_OPS, "int handle) {", "replace", "int process_set_id) {"),
    Edit(
        _TORCH_OPS,
        'return prefix + ".noname." + std::to_string(handle);',
        "replace",
        "return ::horovod::paceline::AutomaticName(prefix, process_set_id);",
    ),
    *(
        Edit(_TORCH_OPS, line, "replace", line.replace("name, handle)", "name, process_set_id)"), within=within)
        for line, within in _TORCH_CALLS
    ),
    # A later set with this id may have other ranks.
    Edit(_PROCESS_SET, '#include "process_set.h"', "after", '#include "bridge/patches.h"'),
    Edit(_PROCESS_SET, "ids_.push_back(id);", "after", "::horovod::paceline::NewProcessSet();"),
    Edit(
        _PROCESS_SET,
        "free_ids_.push(process_set_id);",
        "before",
        "::horovod::paceline::EndProcessSet(process_set_id);",
    ),
)

# TensorFlow names an operation after its tensor, and a second operation on the same tensor differently. A rank of a
# process set may use a tensor twice, and its second operation would be named unlike the other ranks' first.
_GRAPH_NAMES = (
    *(
        f"name = 'Horovod{kind}_%s' % _normalize_name(tensor.name)"
        for kind in ("Allreduce", "Allgather", "Broadcast", "Alltoall", "Reducescatter")
    ),
    *(
        f"name = _normalize_name('HorovodGrouped{kind}_%s_%s' % (tensors[0].name, tensors[-1].name))"
        for kind in ("Allreduce", "Allgather", "Reducescatter")
    ),
)

GRAPH_NAMES: tuple[Edit, ...] = (
    Edit(
        _TENSORFLOW_OPS,
        "from horovod.tensorflow.util import _executing_eagerly",
        "after",
        "from horovod._paceline import glue as _paceline_glue",
    ),
    *(
        Edit(_TENSORFLOW_OPS, line, "after", "name = _paceline_glue.name_on(process_set, name)")
        for line in _GRAPH_NAMES
    ),
)
