"""Schedules of pipeline stages: hvd.Pipeline's and torch.distributed.pipelining's.

benchmark.py  settings, systems, turns and columns
models.py     stages that sleep, stages that compute; timed.py records their busy times
worker.py     program of a rank; ours.py and theirs.py build a pipeline
"""
