"""Run Horovod's own tests, unchanged, and compare the outcome with what is expected of them on today's frameworks."""
