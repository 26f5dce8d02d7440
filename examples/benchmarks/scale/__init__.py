"""Coordination by the number of ranks, measured and simulated.

benchmark.py   settings, turns and columns
systems.py     compared systems: Horovod without its cache and with it, with events, with armed steps
worker.py      program of a rank; messages.py, the recorder's data about its messages
prediction.py  fit of the model's constants; simulated.py, more ranks than this machine can run
plot.py        a picture of kept results
"""
