"""PyTorch's tensors and gradients for stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.stages.execution.activations import Form
from paceline.stages.execution.tensors import Memory
from paceline.torch.stages import trees

# Names of dtypes, as in NumPy.
_NAMES = {one: str(one).removeprefix("torch.") for one in vars(torch).values() if isinstance(one, torch.dtype)}


class StageTensors:
    """PyTorch's implementation of paceline.stages.execution.tensors.Tensors, for a stage on `device`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def unfit(self, value: Any) -> str:
        """Describe `value` if it cannot be sent; "" if it can."""
        if not isinstance(value, Tensor):
            return f"a {type(value).__name__}"
        return "" if value.layout == torch.strided else f"a {value.layout} tensor"

    def members(self, value: Any, whose: str) -> tuple[str, list[Tensor]]:
        """Return the kind of `value` and its tensors."""
        return trees.members(value, whose, self)

    def whole(self, kind: str, tensors: Sequence[Tensor]) -> Any:
        """Rebuild a value from its kind and tensors."""
        return trees.whole(kind, tensors)

    def rows(self, value: Any) -> int:
        """Number of rows of a micro-batch or of its target."""
        return next(one.shape[0] for one in self.members(value, "A micro-batch")[1] if one.dim())

    def host(self, tensor: Tensor) -> Tensor:
        """Return the tensor in host memory without gaps; itself if it already is."""
        tensor = tensor.detach()
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        if not _dense(tensor):
            tensor = tensor.contiguous()
        return tensor if tensor.device.type == "cpu" else tensor.cpu()

    def empty(self, form: Form) -> Tensor:
        """Return an uninitialised host tensor of this form; pinned if the stage is on a GPU."""
        pinned = self.device.type == "cuda"
        return torch.empty_strided(form.shape, form.strides, dtype=getattr(torch, form.dtype), pin_memory=pinned)

    def form(self, host: Tensor, differentiable: bool) -> Form:
        """Return the form of a host tensor."""
        return Form(_NAMES[host.dtype], tuple(host.shape), host.stride(), differentiable)

    def memory(self, host: Tensor) -> Memory:
        """Return address and size of a host tensor."""
        return Memory(host.data_ptr(), host.numel() * host.element_size(), host)

    def here(self, tensor: Tensor) -> Tensor:
        """Return the tensor on the stage's device."""
        return tensor.to(self.device)

    def detached(self, tensor: Tensor) -> Tensor:
        """Return the tensor without its graph."""
        return tensor.detach()

    def number(self, tensor: Tensor) -> float:
        """Return the value of a scalar."""
        return float(tensor.to("cpu", torch.float64))

    def times(self, tensor: Tensor, factor: float) -> Tensor:
        """Return a scalar times a factor."""
        return tensor * factor

    def split(self, tensor: Tensor, count: int) -> list[Tensor]:
        """Split rows as evenly as possible; the first parts get one more."""
        return list(tensor.tensor_split(count))

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Concatenate the rows of `parts`."""
        return torch.cat(list(parts))


def _dense(tensor: Tensor) -> bool:
    """True if its elements fill one piece of memory, in any order of dimensions."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _wide(tensor: Tensor) -> torch.dtype:
    """Type of its norm: at least float32."""
    return torch.promote_types(tensor.dtype, torch.float32)


class ParameterGradients:
    """Gradients of a stage's parameters; implements paceline.stages.execution.clipping.Gradients.

    Results equal those of torch.nn.utils.clip_grad_norm_. `combine`: waits until gradients are combined over all
    replicas, if there are others.
    """

    def __init__(self, parameters: Sequence[Tensor], combine: Callable[[], None] = lambda: None) -> None:
        self._parameters, self._combine = parameters, combine

    def norms(self) -> list[float | None]:
        """Return the norm of each gradient; None for a missing one."""
        self._combine()
        gradients = [one.grad for one in self._parameters]
        return [None if one is None else float(torch.linalg.vector_norm(one, dtype=_wide(one))) for one in gradients]

    def divide(self, by: int) -> None:
        """Divide all gradients by a number."""
        for one in self._parameters:
            if one.grad is not None:
                one.grad.div_(by)

    def clip(self, norms: Sequence[float], max_norm: float) -> float:
        """Clip by `norms`, those of all gradients of the model, to `max_norm`. Returns the total norm before."""
        present = [one.grad for one in self._parameters if one.grad is not None]
        # In one type on every stage; otherwise stages of a model in mixed types would compute different factors.
        total = torch.linalg.vector_norm(torch.tensor(norms, dtype=_wide(present[0]), device=present[0].device))
        torch._foreach_mul_(present, torch.clamp(max_norm / (total + 1e-6), max=1.0))
        return float(total)
