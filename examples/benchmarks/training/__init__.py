"""Training of small models on real data, a run in each turn: with codecs (codecs.py), on uneven ranks (uneven.py), and
with models that are averaged now and then (local.py).
"""
