"""What measures with the examples' data and models, and slows ranks down on purpose; no examples.

uneven_digits.py, uneven_lengths.py   trained by the benchmark `partial` (uneven.py is their loop)
pace.py, delays.py                    how long a step takes, and which ranks are late
stages_torch.py, stages_report.py     training by schedules of stages, and a picture of it
compare_exchanges.py                  where training ends with each exchange, as a table
"""
