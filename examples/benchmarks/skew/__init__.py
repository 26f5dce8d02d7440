"""One allreduce whose ranks come late, after the micro-benchmark of eager-SGD.

benchmark.py  settings, turns and columns
worker.py     what a rank does; model.py, closed forms
"""
