"""Algorithms without types of Horovod or a framework: C++ in libpaceline_core, and its Python interface."""
