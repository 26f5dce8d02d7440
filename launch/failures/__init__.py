"""Failures of ranks: which rank failed first, why, and how much of the ranks' output a terminal shows."""
