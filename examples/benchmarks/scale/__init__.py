"""Coordination by the number of ranks, measured and simulated.

benchmark.py   settings, turns and columns
systems.py     what is compared: Horovod without its cache and with it, with events, with armed steps
worker.py      what a rank does; messages.py, what the recorder saw of its messages
prediction.py  hops and messages of a coordination; simulated.py, more ranks than this machine has room for
plot.py        a picture of kept results
"""
