"""The mean of all ranks' variables, for Keras and TensorFlow. PyTorch's: frameworks/torch/local/averaging.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.errors import UsageError


class VariableAverage:
    """Gives variables the mean of their values on all ranks; the ranks wait for each other. Also within a graph."""

    def __init__(self, wire: Any, settings: Any, value_of: Callable[[Any], Any]) -> None:
        """`wire` talks to the other ranks (keras3_tensorflow, keras3_torch); `settings` are those of its operations.

        `value_of(variable)` is the tensor in it, through which no gradient flows.
        """
        self._name = settings.name
        self._reduce = wire.Reducer(settings)
        self._value_of = value_of

    def __call__(self, variables: Mapping[int, Any]) -> None:
        """Average `variables`, which are numbered the same on all ranks. Raises UsageError for whole numbers."""
        for variable in variables.values():
            if "float" not in str(variable.dtype):
                raise UsageError(
                    f"{self._name} was given the variable {getattr(variable, 'path', variable.name)} of "
                    f"{variable.dtype}, which has no mean.",
                    "Give variables of floating point numbers, such as model.trainable_variables.",
                )
        places = list(variables)
        values = [self._value_of(variable) for variable in variables.values()]
        means = self._reduce(values, places, places, None)
        for variable, mean in zip(variables.values(), means, strict=True):
            variable.assign(mean)


def averager(horovod: Any, wire: Any, settings: Any, value_of: Callable[[Any], Any]) -> Callable[..., None]:
    """`average_variables` of one adapter: its Horovod module, and the modules wire and settings beside it."""
    known: dict[tuple[str, int], VariableAverage] = {}  # TensorFlow compiles the operations of each

    def average_variables(
        variables: Sequence[Any], name: str = "average_variables", process_set: Any = horovod.global_process_set
    ) -> None:
        """Give all ranks the mean of their values of `variables`, such as `model.trainable_variables`.

        All ranks must call it, with as many variables of the same shapes and dtypes, floating point numbers, in the
        same order; eagerly or within a graph. `name`: of the operations; averages that may travel at the same time need
        different names. Raises UsageError, a ValueError, for variables of whole numbers.
        """
        key = (name, process_set.process_set_id)
        if key not in known:
            choices = settings.Settings(
                name=name,
                op=horovod.Average,
                average=horovod.Average,
                process_set=process_set,
                compression=horovod.Compression.none,
            )
            known[key] = VariableAverage(wire, choices, value_of)
        known[key](dict(enumerate(variables)))

    return average_variables
