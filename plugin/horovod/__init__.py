"""Horovod's source: download, hooks and patches, build, cache, installation and checks."""
