"""Paceline: Horovod on current frameworks, with traces, measurements and a place for better exchange methods.

`import paceline.torch as hvd`, `paceline.tensorflow` or `paceline.keras` is where users start; importing this package
alone loads no framework.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("paceline")
except PackageNotFoundError:  # the sources, not installed
    __version__ = "0+unknown"
