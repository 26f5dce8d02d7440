"""`paceline probe`: performance of the network between a job's ranks, and of every collective on it.

command.py  starts the ranks, and writes and shows their measurements
rank.py     measurements of a rank
pairs.py    measurements between two ranks
plot.py     table and heat map
"""
