"""Training steps of a network under Horovod, DDP and Paceline.

benchmark.py  settings, systems, ratios and columns
training.py   how each system makes a step; worker.py, what a rank answers
team.py       the ranks of one system; plans.py, the state of merging by plan
"""
