"""The benchmark harness behind `python -m examples.benchmarks`: systems that exchange gradients, run in turn.

models.py       what is trained: tensors and backward times (resnet.py, bert.py, vgg.py, mini.py; layers.py)
network.py      what systems train: layers that sleep (sleeping.py) or that compute (computing.py)
systems.py      what is compared: one entry per system (system_*.py)
rank.py         what one rank process does
team.py         the ranks of one system, told when to run (assignment.py says what they are told)
hosts.py        where ranks run: this machine or emulated hosts
warm_up.py      steps before measuring, until a system that merges by plan has one (merging.py)
turns.py        the systems in turn (team_run.py), until the ratios (ratios.py) are known well enough (stats.py)
balance.py      the rate of links at which communication takes as long as compute
report.py       JSON; table.py makes tables of it

Partial collectives are measured by two programs of their own, on ranks that horovodrun starts (launched.py):

skew.py         latencies of one allreduce when ranks come late (skew_rank.py), beside closed forms (skew_model.py)
uneven_training.py  a training whose ranks differ in speed
skew_report.py, uneven_report.py, partial_table.py  their JSON and tables

codec_training.py  training through codecs, by an example on ranks that horovodrun starts; codec_table.py its table
"""
