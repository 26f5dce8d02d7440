"""Algorithms without Horovod or framework types: C++ in libpaceline_core and this face of it."""
