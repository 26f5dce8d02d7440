"""C++ compiled into Horovod's libraries: hook implementations that convert Horovod's types and call core."""
