"""Training steps of a Keras network that computes, under Horovod, Paceline and DistributedDataParallel.

benchmark.py  settings, systems, ratios and columns
network.py    the network; worker.py, program of a rank; training.py, a step of each system
"""
