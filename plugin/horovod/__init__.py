"""How Horovod is obtained, given hook points and patches, built, cached, installed and checked."""
