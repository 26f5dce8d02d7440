"""Reduce, lower bounds on the time of collectives, and measured networks."""
