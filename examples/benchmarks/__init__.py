"""The benchmark command of a clone: `python -m examples.benchmarks NAME`. Not part of an installed Paceline.

command.py   the command; cases.py, the table of cases; kept.py, page.py, markdown.py: results
harness/     systems in turn, until their ratios are known precisely enough
cluster/     emulated hosts, for tests and benchmarks
steps/       training steps of a network (networks/) under Horovod, DDP and Paceline
collectives/, stages/, scale/, skew/, training/, memory/   the other kinds of cases
keras_steps/ training steps of a Keras network
outside/     programs of other projects, from folders of yours

Scripts, which can also be run directly:

uneven_digits.py, uneven_lengths.py, codecs_torch.py   trained by cases of training/ (uneven.py is a loop)
pace.py, delays.py                                     duration of a step, and which ranks are late
stages_torch.py, stages_report.py                      training by schedules of stages, and a picture of it
compare_exchanges.py                                   final loss and accuracy with each exchange, as a table
"""
