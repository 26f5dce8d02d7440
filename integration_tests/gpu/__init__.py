"""Tests and measurements with tensors on a GPU that several ranks share: `python -m integration_tests.gpu`."""
