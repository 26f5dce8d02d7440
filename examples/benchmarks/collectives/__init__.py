"""Single messages by Horovod on Gloo, torch.distributed and Paceline's collectives.

benchmark.py  settings, turns and columns
systems.py    compared systems; worker.py, program of a rank
"""
