"""Single messages by Horovod on Gloo, torch.distributed and Paceline's collectives.

benchmark.py  settings, turns and columns
systems.py    what is compared; worker.py, what a rank does
"""
