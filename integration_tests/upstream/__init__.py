"""Run Horovod's own tests, unchanged, and compare the outcome with the expected one on today's frameworks."""
