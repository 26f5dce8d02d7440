"""The harness behind `python -m examples.benchmarks collectives`: one message at a time, by every system in turn.

cases.py     what is measured, and what the controller and a rank tell each other
systems.py   what is compared: one entry per system (horovod_calls.py, ddp_calls.py, mpi_calls.py; buffers.py)
rank.py      what one rank process does
callers.py   the ranks of one system (../crew.py), told what to call; mpi_start.py: those that mpirun starts
turns.py     the systems in turn, until their ratios are known well enough
report.py    JSON; table.py makes tables of it
"""
