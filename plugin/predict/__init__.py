"""Prediction of the time of a training iteration, synchronous or pipelined: docs/guides/planning.md."""
