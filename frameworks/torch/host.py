"""Horovod's PyTorch module, checked; the other modules take it from here."""

from __future__ import annotations

from typing import Any

from paceline.host.load import load

horovod_torch: Any = load("torch")


def session() -> object:
    """An object that is another one after every hvd.init(): Horovod makes its table of handles anew there."""
    return horovod_torch.mpi_ops._handle_map
