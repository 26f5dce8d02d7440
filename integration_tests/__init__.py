"""Tests of Paceline against real Horovod, and the tools that are theirs alone."""

import contextlib
import importlib

# PyTorch's CUDA wheels bring Triton, which crashes where TensorFlow was imported before it.
with contextlib.suppress(ImportError):
    importlib.import_module("triton")
