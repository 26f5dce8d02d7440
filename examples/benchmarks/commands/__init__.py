"""The command python -m examples.benchmarks."""
