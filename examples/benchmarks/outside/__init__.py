"""Benchmark programs of other projects, unmodified, on stock Horovod and on Paceline.

Nothing of them is in this repository: they run from a folder of yours, and a case without its folder is left out.

benchmark.py  settings, turns and columns; settings.py, the settings; program.py, what a program consists of
sources.py    folders of checkouts, and where to get them; programs.py, the table of programs
systems.py    environments of Horovod's ranks; jobs.py, runs under horovodrun
param.py      PARAM's comms.py; param_ranks.py, the rank, with a back end for Horovod
gloo.py       Gloo's benchmark, built from Horovod's archive; gloo_ranks.py, the rank
synthetic.py  Horovod's synthetic benchmarks; synthetic_ranks.py, the rank of a script that imports torchvision
lists.py      gradients of KungFu's fake models, and DDP's of a Chakra trace; lists_ranks.py submits them
"""
