"""Modules that the built Horovod imports: what variables request, and operations on tensors of a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from horovod.common.exceptions import HorovodInternalError

from paceline.horovod.shims import elastic_interrupts, host_staging, unmodified
from paceline.horovod.shims.host_staging import Staging


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("", False), ("none", False), ("q8", True)])
def test_empty_codec_is_not_a_request(monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool) -> None:
    if value is None:
        monkeypatch.delenv("PACELINE_CODEC", raising=False)
    else:
        monkeypatch.setenv("PACELINE_CODEC", value)
    assert unmodified._codec_asked() is expected


class Saved:
    """An elastic state whose calls are noted; `lost`: a rank is lost while it is saved."""

    def __init__(self, lost: bool) -> None:
        self.lost = lost
        self.calls: list[str] = []

    def save(self) -> None:
        self.calls.append("save")
        if self.lost:
            raise HorovodInternalError("Rank 1 died")

    def restore(self) -> None:
        self.calls.append("restore")


@pytest.mark.parametrize(("lost", "calls"), [(False, ["save"]), (True, ["save", "restore"])])
def test_an_interrupted_rank_commits_or_returns_to_its_last_commit(lost: bool, calls: list[str]) -> None:
    state = Saved(lost)
    assert elastic_interrupts.keep(state) is not lost
    assert state.calls == calls


class Library:
    """A library with one operation, which may refuse it."""

    def __init__(self) -> None:
        self.refusal: Exception | None = None
        self.submitted: list[bytes] = []
        self.complete = False
        self.waited: list[int] = []

    def horovod_torch_allreduce_async_torch_FloatTensor(self, tensor: Any, output: Any, name: bytes) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.submitted.append(name)
        return len(self.submitted)

    def horovod_torch_poll(self, handle: int) -> int:
        return int(self.complete)

    def horovod_torch_wait_and_clear(self, handle: int) -> None:
        self.waited.append(handle)


class Gate:
    """A device whose copies are done when `opened` is set."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def has(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def capturing(self) -> bool:
        return False

    def empty(self, like: Any) -> Any:
        return torch.empty_like(like)

    def down(self, tensors: Sequence[Any]) -> tuple[list[Any], Callable[[], None]]:
        return [one.clone() for one in tensors], lambda: None if self.opened.wait(60) else pytest.fail("never opened")

    def up(self, host: Any, tensor: Any) -> None:
        tensor.copy_(host)


def _started(name: bytes) -> tuple[Library, Gate, Any, Staging, int]:
    library, gate = Library(), Gate()
    wrapped: Any = library
    staging = Staging(wrapped, gate, lambda: 3)
    tensor = torch.ones(3)
    handle = wrapped.horovod_torch_allreduce_async_torch_cuda_FloatTensor(tensor, tensor, name)
    return library, gate, wrapped, staging, handle


def test_poll_follows_an_operation_to_its_end() -> None:
    library, gate, wrapped, staging, handle = _started(b"followed")
    assert wrapped.horovod_torch_poll(handle) == 0
    gate.opened.set()
    staging.settle()
    assert (library.submitted, wrapped.horovod_torch_poll(handle)) == ([b"followed"], 0)
    library.complete = True
    assert wrapped.horovod_torch_poll(handle) == 1
    wrapped.horovod_torch_wait_and_clear(handle)
    assert library.waited == [1] and not staging._trips


def test_refusal_is_raised_by_the_wait_and_not_by_polls() -> None:
    library, gate, wrapped, staging, handle = _started(b"refused")
    library.refusal = ValueError("duplicate name")
    gate.opened.set()
    staging.settle()
    assert [wrapped.horovod_torch_poll(handle) for _ in range(2)] == [1, 1]
    with pytest.raises(ValueError, match="duplicate name"):
        wrapped.horovod_torch_wait_and_clear(handle)
    assert not staging._trips and not library.waited


def test_operation_whose_wait_timed_out_is_never_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    library, gate, wrapped, staging, handle = _started(b"late")
    monkeypatch.setattr(host_staging, "LIMIT_S", 0.05)
    with pytest.raises(RuntimeError, match=r"late: rank 3 expected its copy to CPU memory within 0.05 s.*nvidia-smi"):
        wrapped.horovod_torch_wait_and_clear(handle)
    assert not staging._trips
    monkeypatch.setattr(host_staging, "LIMIT_S", 60.0)
    gate.opened.set()
    tensor = torch.ones(3)
    after = wrapped.horovod_torch_allreduce_async_torch_cuda_FloatTensor(tensor, tensor, b"after")
    wrapped.horovod_torch_wait_and_clear(after)
    assert library.submitted == [b"after"]
