"""Horovod's library in this process, called through C."""
