"""The pipelined exchange (Pipe-SGD)."""
