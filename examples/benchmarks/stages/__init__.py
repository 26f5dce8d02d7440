"""`python -m examples.benchmarks pipeline`: schedules of pipeline stages, and torch.distributed.pipelining's, in turn.

cases.py    what is measured, and what the controller and a rank tell each other
models.py   the stages: ones that sleep for given times, ones that compute; timed.py writes down when they are at work
systems.py  what is compared: schedules of hvd.Pipeline (ours.py) and of torch.distributed.pipelining (theirs.py)
rank.py     what one rank process does
worlds.py   the ranks of one library
turns.py    the systems in turn
report.py   JSON; table.py makes tables of it
"""
