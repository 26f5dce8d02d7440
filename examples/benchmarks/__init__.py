"""What measures with the examples' data and models, and slows ranks down on purpose; no examples.

uneven_digits.py, uneven_lengths.py   `paceline bench partial --part training` runs them (uneven.py is their loop)
pace.py, delays.py                    how long a step takes, and which ranks are late
compare_exchanges.py                  where training ends with each exchange, as a table
"""
