"""How Horovod is obtained, given hook points and mends, built, cached, installed and checked."""
