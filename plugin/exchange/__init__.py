"""Base of all exchanges: the meaning of an allreduce of gradients."""
