"""The benchmark harness behind `paceline bench`: systems that exchange gradients, run in turn on networks that sleep.

models.py       what is trained: tensors and backward times (resnet.py, bert.py, vgg.py, mini.py; layers.py)
sleeping.py     the network itself: layers that sleep instead of computing
systems.py      what is compared: one entry per system (system_*.py)
rank.py         what one rank process does
team.py         the ranks of one system, told when to run (assignment.py says what they are told)
hosts.py        where ranks run: this machine or emulated hosts
warm_up.py      steps before measuring, until a system that merges by plan has one (merging.py)
turns.py        the systems in turn, until the ratios are known well enough (stats.py)
report.py       JSON and tables
"""
