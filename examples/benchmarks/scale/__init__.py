"""`python -m examples.benchmarks scale`: what coordination takes by the number of ranks, measured and simulated.

cases.py    what is measured, and what the controller and a rank tell each other
systems.py  what is compared: Horovod without its cache and with it, with events, with armed steps
threads.py  processor time and sleeps of a rank's threads, Horovod's background thread among them
steps.py    a step: gradients in parts, one after the other
rank.py     what one rank process does; forks.py starts all of a system's from one process
worlds.py   the ranks of one system; memory.py: how many this machine has room for
turns.py    the systems in turn
simulated.py  constants from what was measured, and coordination of more ranks than this machine has room for
plans.py    bytes of a plan
report.py   JSON; table.py makes tables of it, plot.py a picture
"""
