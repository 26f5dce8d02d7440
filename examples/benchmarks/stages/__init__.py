"""Schedules of pipeline stages: hvd.Pipeline's and torch.distributed.pipelining's.

benchmark.py  settings, systems, turns and columns
models.py     stages that sleep, stages that compute; timed.py records when they are at work
worker.py     what a rank does; ours.py and theirs.py build a pipeline
"""
