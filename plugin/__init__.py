"""Paceline: a plugin for Horovod on current frameworks, with further exchanges, collectives, traces and measurements.

Users import `paceline.torch`, `paceline.tensorflow` or `paceline.keras` as hvd; importing this package alone loads no
framework.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("paceline")
except PackageNotFoundError:  # the sources, not installed
    __version__ = "0+unknown"
