"""A rank of a script that imports torchvision.

    python -m paceline.examples.benchmarks.outside.synthetic_ranks SCRIPT ARGUMENTS...

torchvision of PyPI is built for CUDA. With PyTorch's CPU build its compiled operators do not load, and its import fails
because it registers functions for two of them, which detect objects. So we declare these operators; a network that
classifies images does not use them. The script runs unchanged.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path

import torch

_LIBRARY = "torchvision"
_OPERATORS = ("nms", "qnms")


def declare_missing() -> torch.library.Library | None:
    """Declare the operators if torchvision's operators do not load; the declaration lasts as long as the result."""
    found = importlib.util.find_spec(_LIBRARY)
    if found is None or found.origin is None:
        return None
    try:
        torch.ops.load_library(Path(found.origin).with_name("_C.so"))
        return None
    except OSError:
        declared = torch.library.Library(_LIBRARY, "DEF")
        for name in _OPERATORS:
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return declared


if __name__ == "__main__":
    kept = declare_missing()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
