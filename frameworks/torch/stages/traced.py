"""Models traced and cut by torch.distributed.pipelining (its `Pipe`), as a sequence of layers.

In a Pipe any stage may use the output of any earlier one. Here a stage communicates only with its neighbours: values
for later stages pass through as members of a tuple.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, fx, nn

from paceline.errors import UsageError
from paceline.torch.stages.layers import Layer

# torch.export is not thread-safe.
_TRACING = threading.Lock()
# Arguments of operations that were traced from modules in train mode.
_MODES = ("train", "training", "use_input_stats")


def traced(model: nn.Module, cuts: Sequence[str], sample: Any) -> list[Layer]:
    """Trace `model` with the micro-batch `sample`; return layers that begin with the submodules `cuts`.

    Raises UsageError for models that torch.distributed.pipelining.pipeline cannot trace or cut like this.
    """
    from torch.distributed.pipelining import SplitPoint, pipeline

    known = dict(model.named_modules())
    for name in cuts:
        if name not in known or not name:
            raise UsageError(
                f"stages= names {name!r}: expected a submodule of the {type(model).__name__}.",
                f"It has {', '.join(one for one in known if one and '.' not in one)}, and what is within these.",
            )
    given = sample if isinstance(sample, (tuple, list)) else (sample,)
    # One tensor given twice would be traced as one input.
    arguments = tuple(one.clone() if isinstance(one, Tensor) else one for one in given)
    try:
        with _TRACING:
            made = pipeline(model, arguments, split_spec=dict.fromkeys(cuts, SplitPoint.BEGINNING))
    except Exception as error:
        raise UsageError(
            f"torch.distributed.pipelining could not trace the {type(model).__name__}: {_root(error)}",
            "Write it without control flow that depends on data, or as a list of modules.",
        ) from error
    found = layers_of_pipe(made)
    if len(found) != len(cuts) + 1:
        raise UsageError(
            f"stages={list(cuts)} cut the {type(model).__name__} into {len(found)} parts: expected {len(cuts) + 1}.",
            "Name submodules that are called once each, after the first operation of the model.",
        )
    return found


def layers_of_pipe(pipe: Any) -> list[Layer]:
    """Return the stages of a torch.distributed.pipelining.Pipe; raises UsageError as `layers_of_graph` does."""
    return [one for one in layers_of_graph(pipe.split_gm.graph, pipe.get_stage_module) if one is not None]


def layers_of_graph(graph: fx.Graph, module_of: Callable[[int], nn.Module | None]) -> list[Layer | None]:
    """Return layers with the traced model's names from a graph of stages; `module_of`: module of a number, or None.

    Raises UsageError for graphs with other operations between stages, and for stages that take keywords or non-tensors.
    """
    nodes = list(graph.nodes)
    calls = [node for node in nodes if node.op == "call_module"]
    if any(node.kwargs for node in calls):
        raise UsageError("A stage of the traced model takes keyword arguments.", "Trace it with positional ones.")
    other = [node for node in nodes if node.op not in ("placeholder", "call_module", "output") and not _is_item(node)]
    if other:
        raise UsageError(
            f"The traced model does {other[0].format_node()} between its stages.", "Cut it at other submodules."
        )
    arrives = [one for one in nodes if one.op == "placeholder"]
    if not all(isinstance(one.meta.get("val"), Tensor) for one in arrives):
        raise UsageError("The traced model takes something that is not a tensor.", "Trace it with tensors alone.")
    shapes = [tuple(one.meta["val"].shape) for one in arrives]
    result = nodes[-1].args[0]
    if isinstance(result, (tuple, list)) and len(result) == 1:
        result = result[0]  # so a single tensor is returned, too
    found: list[Layer | None] = []
    for number, call in enumerate(calls):
        leaves = None if number == len(calls) - 1 else _needed_after(nodes, call)
        module = module_of(number)
        if module is None:
            found.append(None)
        else:
            expected = shapes if number == 0 else None
            routed = _Routed(module, call, arrives, leaves, result, expected)
            found.append(Layer(f"stage {number}", module, routed, prefix=""))
        arrives = leaves or []
    return found


class _Routed(nn.Module):
    """One stage: selects its own arguments from the received values, and passes on those that later stages need.

    `call`: the stage in the graph of the whole. `arrives`, `leaves`: nodes of that graph whose values are received and
    sent, as a tensor if there is one, else as a tuple. `leaves` is None for the last stage, which returns `result`.
    `shapes`: required input shapes of the first stage.
    """

    def __init__(
        self,
        module: nn.Module,
        call: fx.Node,
        arrives: Sequence[fx.Node],
        leaves: Sequence[fx.Node] | None,
        result: Any,
        shapes: Sequence[tuple[int, ...]] | None,
    ) -> None:
        super().__init__()
        self.module = module
        self._call, self._arrives, self._leaves, self._result, self._shapes = call, arrives, leaves, result, shapes

    def forward(self, value: Any) -> Any:
        """Run the stage on a tensor, or a tuple or list of tensors."""
        values = list(value) if isinstance(value, (tuple, list)) else [value]
        if self._shapes is not None:
            self._check(values)
        known = dict(zip(self._arrives, values, strict=True))
        found = self.module(*fx.map_arg(self._call.args, known.__getitem__))
        known[self._call] = found
        for user in self._call.users:
            if _is_item(user):
                known[user] = found[user.args[1]]
        if self._leaves is None:
            return fx.map_arg(self._result, known.__getitem__)
        leaves = tuple(known[node] for node in self._leaves)
        return leaves[0] if len(leaves) == 1 else leaves

    def _check(self, values: Sequence[Tensor]) -> None:
        found = [tuple(one.shape) for one in values]
        if found != self._shapes:
            raise UsageError(
                f"A micro-batch has the shapes {found}: the model was traced with {self._shapes}, and takes no others.",
                "Give batches whose rows are n_microbatches times those it was traced with (drop_last=True).",
            )


def _needed_after(nodes: Sequence[fx.Node], call: fx.Node) -> list[fx.Node]:
    """Values available after `call` that a later stage, or the result, uses."""
    place = {node: number for number, node in enumerate(nodes)}

    def made_by(node: fx.Node) -> int:
        return place[node.args[0]] if _is_item(node) else place[node]

    return [
        node
        for node in nodes
        if node.op != "output"
        and made_by(node) <= place[call]
        and any(place[user] > place[call] and not _is_item(user) for user in node.users)
    ]


def _is_item(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem and _of_call(node)


def _of_call(node: fx.Node) -> bool:
    of = node.args[0]
    return isinstance(of, fx.Node) and of.op == "call_module"


def always_trains(module: nn.Module) -> str:
    """Name of the first operation in the module that was traced in train mode and cannot switch; "" if none."""
    for node in _all_nodes(module):
        schema = getattr(node.target, "_schema", None)
        for place, argument in enumerate(schema.arguments if schema is not None else ()):
            given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            if argument.name in _MODES and given is True:
                return str(node.target)
    return ""


def _all_nodes(module: nn.Module) -> Iterator[fx.Node]:
    for one in module.modules():
        graph = getattr(one, "graph", None)
        if isinstance(graph, fx.Graph):
            yield from graph.nodes


def _root(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".splitlines()[0]
