"""Training steps of a network under Horovod, DDP and Paceline.

benchmark.py  settings, systems, ratios and columns
training.py   a step of each system; worker.py, program of a rank
team.py       the ranks of one system; plans.py, the state of merging by plan
"""
