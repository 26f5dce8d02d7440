"""One allreduce with late ranks, after the micro-benchmark of eager-SGD.

benchmark.py  settings, turns and columns
worker.py     program of a rank; model.py, closed forms
"""
