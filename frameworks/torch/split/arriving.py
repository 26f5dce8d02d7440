"""Parameters in flight: code that reads one waits for its new value.

The class of a parameter can be changed at run time, as torch does with UninitializedParameter. While its new value is
in flight, a parameter is an InFlightParameter. Every torch function with such an argument calls `__torch_function__`
first: it waits, restores the class and continues. Functions that need only metadata or the gradient do not wait.

Limits: a tensor or array that aliases the parameter's memory shows the old value until the parameter itself is read.
TorchScript and C++ extensions read parameters without a torch function. `unseen` finds TorchScript's modules; a
gradient of a parameter in flight shows any other such read (`check_read`).

A process that is forked, such as one that loads data, cannot wait: nothing arrives there. So a fork waits for all.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from horovod.common.exceptions import HorovodInternalError
from torch import Tensor
from torch.nn import Parameter

from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod

_ARRIVING = "_paceline_arriving"
_PROPERTIES = (
    "grad", "requires_grad", "shape", "dtype", "device", "layout", "is_leaf", "grad_fn", "_version", "names", "ndim",
    "is_sparse", "is_cuda", "is_cpu", "is_meta", "is_mps", "is_xpu", "is_quantized", "is_nested", "is_mkldnn",
    "is_sparse_csr", "is_ipu", "is_xla", "is_maia", "is_mtia", "is_vulkan", "itemsize", "nbytes", "name", "output_nr",
    "retains_grad", "_backward_hooks", "_post_accumulate_grad_hooks", "_grad", "_base", "grad_dtype",
)  # fmt: skip
_METHODS = (
    "size", "dim", "ndimension", "numel", "nelement", "element_size", "stride", "storage_offset", "is_contiguous",
    "is_floating_point", "is_complex", "is_signed", "is_inference", "is_conj", "is_neg", "get_device",
    "requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "__len__", "__dir__",
    "sparse_dim", "dense_dim", "is_same_size", "is_shared", "is_pinned",
)  # fmt: skip


def _asking() -> Iterator[Any]:
    for name in _PROPERTIES:
        found = vars(torch._C.TensorBase).get(name) or vars(Tensor).get(name)
        if found is not None:
            yield from (found.__get__, getattr(found, "__set__", None), getattr(found, "__delete__", None))
    yield from (getattr(Tensor, name, None) for name in _METHODS)
    yield from (torch.numel, torch.is_floating_point, torch.is_complex, torch.is_same_size)


# Functions of torch that read or change metadata or the gradient, and never the values.
ASKING = {one for one in _asking() if one is not None}


class _InFlight:
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in ASKING:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **kwargs)
        if function is Tensor.copy_ and isinstance(args[0], _InFlight):
            with contextlib.suppress(HorovodInternalError):  # a value that never arrives is overwritten
                _landed(args[0])
        _land_in((args, kwargs))
        return function(*args, **kwargs)

    # These methods of Parameter look at the class before they call a torch function.

    def __deepcopy__(self, memo: Any) -> Any:
        return _landed(self).__deepcopy__(memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _landed(self).__reduce_ex__(protocol)

    def __repr__(self, *args: Any, **kwargs: Any) -> str:
        return str(_landed(self).__repr__(*args, **kwargs))


class InFlightParameter(_InFlight, Parameter):
    """A Parameter whose new value is in flight."""


class InFlightTensor(_InFlight, Tensor):
    """A leaf that is not a Parameter, whose new value is in flight."""


_unread: weakref.WeakSet[Arriving] = weakref.WeakSet()
_CLASSES: dict[type, type] = {Parameter: InFlightParameter, Tensor: InFlightTensor}
_ORDINARY = {in_flight: ordinary for ordinary, in_flight in _CLASSES.items()}


class Arriving:
    """New values of parameters, in flight until code reads one of them or calls `land`."""

    def __init__(
        self, parameters: Sequence[Tensor], wait: Callable[[], Sequence[Tensor]], landed: Callable[[], None]
    ) -> None:
        """`wait()` returns the values to copy into the parameters, or nothing if they are in place.

        `landed()` is called before `wait()`, in the thread that reads.
        """
        self._parameters = parameters
        self._wait = wait
        self._landed = landed
        # Protects the copy: a second reading thread waits for the first.
        self._lock = threading.RLock()
        self._over = False
        for parameter in parameters:
            vars(parameter)[_ARRIVING] = self
            parameter.__class__ = _CLASSES[type(parameter)]
        _unread.add(self)

    @staticmethod
    def takes(parameters: Sequence[Tensor]) -> bool:
        """Return True if the classes of these parameters can be changed."""
        return all(type(parameter) in _CLASSES for parameter in parameters)

    def land(self) -> None:
        """Wait for the new values and restore the classes. Raises the error of `wait`."""
        with self._lock:
            if self._over:
                return
            try:
                self._landed()
                # Active torch function modes must not see this copy.
                with torch._C.DisableTorchFunction(), torch.no_grad():
                    values = self._wait()
                    if values:
                        torch._foreach_copy_(list(self._parameters), list(values))
            finally:
                self.drop()

    def drop(self) -> None:
        """Restore the classes and keep the old values."""
        with self._lock:
            self._over = True
            _unread.discard(self)
            for parameter in self._parameters:
                parameter.__class__ = _ORDINARY.get(type(parameter), type(parameter))
                vars(parameter).pop(_ARRIVING, None)


def check_read(parameter: Tensor, name: str) -> None:
    """Raise UsageError if the parameter, whose gradient has come, is still in flight."""
    if type(parameter) in _ORDINARY:
        raise UsageError(
            f"Rank {horovod.rank()}: the new value of {name!r} was still in flight when its gradient came: code that "
            "Paceline cannot see, such as a function of TorchScript or of a C++ extension, read the old value.",
            "Call optimizer.drain() after step(), or use another exchange.",
        )


def unseen(parameters: Iterable[Tensor]) -> bool:
    """Return True if a module of TorchScript has one of these parameters."""
    own = {id(one) for one in parameters}
    # By type: proxies may pretend to be of another class.
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.jit.ScriptModule)]
    return any(id(one) in own for module in modules for one in module.parameters())


def _land_all() -> None:
    for arriving in list(_unread):
        arriving.land()


os.register_at_fork(before=_land_all)


def _landed(parameter: Any) -> Any:
    arriving = vars(parameter).get(_ARRIVING)
    if arriving is not None:
        arriving.land()
    if type(parameter) in _ORDINARY:  # a copy that kept the class
        parameter.__class__ = _ORDINARY[type(parameter)]
    return parameter


def _land_in(found: Any) -> None:
    if isinstance(found, _InFlight):
        _landed(found)
    elif isinstance(found, (tuple, list)):
        for one in found:
            _land_in(one)
    elif isinstance(found, dict):
        for one in found.values():
            _land_in(one)
