"""Failures of a rank: reports to its launcher, and the excerpt shown of an uncaught error."""
