"""Checks of a compiled step: operations that may raise before its gradients are used.

TensorFlow runs the operations of a graph in any order that their inputs allow. When a tf.debugging.assert_* fails,
some ranks may already have submitted gradients and others not. An update therefore waits for the checks that were
traced before it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

# Operations that raise and that gradients need not depend on. Unused stateless ones are not run, and stay so.
_RAISE = ("Assert", "EagerPyFunc", "PyFunc", "CheckNumerics", "CheckNumericsV2")
_RUN_IF_USED = ("CheckNumerics", "CheckNumericsV2")


def after_checks() -> AbstractContextManager[Any]:
    """Context whose operations run only if all checks traced so far in this graph have passed."""
    graph = tf.compat.v1.get_default_graph() if not tf.executing_eagerly() else None
    checks = [] if graph is None else [op for op in graph.get_operations() if _checks(op, {})]
    context: AbstractContextManager[Any] = tf.control_dependencies(checks)
    return context


def _checks(op: Any, known: dict[str, bool]) -> bool:
    """True if `op` may raise by itself or in a function that it calls; `known` caches the answer per function name."""
    if op.type in _RAISE:
        return op.type not in _RUN_IF_USED or any(output.consumers() for output in op.outputs)
    for value in op.node_def.attr.values():
        for function in [value.func] if value.HasField("func") else value.list.func:
            if function.name not in known:
                known[function.name] = False  # also ends the recursion of a function that calls itself
                body = op.graph._get_function(function.name).graph
                known[function.name] = any(_checks(one, known) for one in body.get_operations())
            if known[function.name]:
                return True
    return False
