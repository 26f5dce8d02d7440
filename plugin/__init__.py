"""Paceline: Horovod with optimal gradient merging, pipelined and partial exchanges, and linear pipelines.

`import paceline.torch as hvd`, `paceline.tensorflow` or `paceline.keras` is where users start; importing this package
alone loads no framework.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("paceline")
except PackageNotFoundError:  # the sources, not installed
    __version__ = "0+unknown"
