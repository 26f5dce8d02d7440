"""Edits of Horovod's Python files for Keras 3.

Each calls `paceline.horovod.shims.keras3`, which has no effect unless Keras 3 is in use.
"""

from __future__ import annotations

from paceline.horovod.edits import Edit

_SHIM = "from horovod._paceline import keras3"

TENSORFLOW = "horovod/tensorflow/__init__.py"
_FUNCTIONS = "horovod/tensorflow/functions.py"
_SYNC_BATCH_NORM = "horovod/tensorflow/sync_batch_norm.py"
_ELASTIC = "horovod/tensorflow/elastic.py"
_KERAS = "horovod/_keras/__init__.py"

_DISTRIBUTED_OPTIMIZER = f"""\
{_SHIM}
if keras3.is_optimizer(optimizer):
    return keras3.distributed_optimizer(
        optimizer, name, device_dense=device_dense, device_sparse=device_sparse, compression=compression,
        sparse_as_dense=sparse_as_dense, gradient_predivide_factor=gradient_predivide_factor, op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients, groups=groups, process_set=process_set,
        scale_local_gradients=scale_local_gradients)"""

_LOAD_MODEL = f"""\
{_SHIM}
if keras3.used_as(keras):
    return keras3.load_model(
        keras, lambda optimizer: wrap_optimizer(lambda: optimizer)(), filepath, custom_optimizers, custom_objects)"""

KERAS3_EDITS: tuple[Edit, ...] = (
    Edit(
        TENSORFLOW,
        "_IS_TF2 = version.parse(tf.__version__) >= version.parse('2.0.0')",
        "after",
        f"{_SHIM}\nkeras3.install(tf)",
    ),
    # Groups identified variables by name; Keras 3 names every kernel "kernel".
    Edit(
        TENSORFLOW,
        "var_name2grad[var.name] = (i, grad)",
        "replace",
        "var_name2grad[var.ref()] = (i, grad)",
    ),
    Edit(TENSORFLOW, "if var.name in var_name2grad:", "replace", "if var.ref() in var_name2grad:"),
    Edit(
        TENSORFLOW,
        "grad_group.append(var_name2grad[var.name])",
        "replace",
        "grad_group.append(var_name2grad[var.ref()])",
    ),
    Edit(TENSORFLOW, "del var_name2grad[var.name]", "replace", "del var_name2grad[var.ref()]"),
    # A tf.function converts variables of Keras 3 to tensors, but not tf.Variables.
    Edit(
        TENSORFLOW,
        "rg = self._allreduce_grads(rg, rs, use_generic_names)",
        "replace",
        "rg = self._allreduce_grads(rg, keras3.tensorflow_variables(rs), use_generic_names)",
    ),
    Edit(_FUNCTIONS, "if inplace:", "before", f"{_SHIM}\nvariables = keras3.broadcast_variables(variables)"),
    Edit(
        _SYNC_BATCH_NORM,
        "class SyncBatchNormalization(tf.keras.layers.BatchNormalization):",
        "before",
        f"{_SHIM}\n\n\n@keras3.sync_batch_normalization",
    ),
    Edit(
        _ELASTIC,
        "class TensorFlowKerasState(ObjectState):",
        "before",
        f"{_SHIM}\n\n\n@keras3.elastic_state",
    ),
    Edit(_KERAS, "class _DistributedOptimizer(*optimizer.__class__.__bases__):", "before", _DISTRIBUTED_OPTIMIZER),
    Edit(_KERAS, "if legacy_opts:", "before", _LOAD_MODEL),
    *(
        Edit(
            f"horovod/{package.replace('.', '/')}/__init__.py",
            f"from horovod.{package} import callbacks, elastic",
            "after",
            f"{_SHIM}\nkeras3.replace_callbacks(callbacks, keras)",
        )
        for package in ("keras", "tensorflow.keras")
    ),
)
