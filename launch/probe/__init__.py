"""`paceline probe`: what the network between the ranks of a job gives, and what every collective takes on it.

command.py  starts the ranks, and writes and shows what they tell
rank.py     what a rank measures
pairs.py    between two ranks
plot.py     table and heat map
"""
