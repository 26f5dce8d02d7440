"""Training of small models on real data, one run per turn.

codecs.py  with codecs
uneven.py  on ranks of uneven speed
local.py   with models that are averaged periodically
"""
