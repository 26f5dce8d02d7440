"""Whether a script has changed gradients in flight.

Between backward() and synchronize() or step() a gradient is read, and results are written to its memory, by Horovod's
thread. torch counts the writes to a tensor; those through `.data` it does not count, and they are not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.company import Company
from paceline.torch.optimizer.member import Member


def counts_writes(gradient: Tensor) -> bool:
    """Whether torch counts a script's writes alone.

    Horovod without GPU operations copies results to GPUs by torch.
    """
    return not gradient.is_cuda or bool(horovod.nccl_built())


def change_in_flight(submitted: Iterable[Company], members: Sequence[Member]) -> str:
    """Whose gradient was changed since it was submitted, and how; "": none was. `members`: all of the optimizer."""
    for company in submitted:
        for member in company.members:
            if not member.active or not (found := member.changed()):
                continue
            if company.flat:
                return f"{member.name!r} or of one that travels with it was changed (found {found})"
            if not _in_buffer(member, members):
                return f"{member.name!r} was changed (found {found})"
    return ""


def _in_buffer(member: Member, members: Sequence[Member]) -> bool:
    """Whether a script keeps this gradient and others in one buffer: torch counts the writes to all of it together."""
    gradient = member.parameter.grad
    if gradient is not member.submitted or gradient is None or gradient.layout != torch.strided:
        return False
    memory = gradient.untyped_storage().data_ptr()
    others = (one.parameter.grad for one in members if one is not member)
    return any(
        one is not None and one.layout == torch.strided and one.untyped_storage().data_ptr() == memory for one in others
    )
