"""Checks of histories: pure Python, without a framework and without Horovod."""
