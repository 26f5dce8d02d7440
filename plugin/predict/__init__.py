"""What an iteration of training takes, synchronous or pipelined, and which is worth it: docs/guides/planning.md."""
