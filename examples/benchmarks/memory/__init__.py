"""Peak memory of a rank, above parameters, gradients and optimizer state.

benchmark.py  settings, systems and columns; multiples of the parameters' bytes
worker.py     training program of a rank, and the kernel's counts of its memory
"""
