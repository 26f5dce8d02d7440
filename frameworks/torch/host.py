"""Horovod's PyTorch module, or a clear word that it is missing. The other modules take it from here."""

from __future__ import annotations

from typing import Any

from paceline.host.check import at_import
from paceline.torch.errors import HostMissing

_REMEDY = "Run `paceline host install` in this environment (with torch installed), then start again."

# First: a library built for another torch fails to load with words that help nobody.
at_import("torch")

try:
    import horovod.torch
except ImportError as error:
    raise HostMissing(f"horovod.torch cannot be imported: {error}", _REMEDY) from error
if not hasattr(horovod.torch, "init"):
    raise HostMissing("Horovod is installed without PyTorch.", _REMEDY)

horovod_torch: Any = horovod.torch
