"""Failures of ranks: the rank that failed first, the reason, and the part of the ranks' output to show."""
