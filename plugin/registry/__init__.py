"""Registries of exchanges, codecs, collectives and fusion policies, with one line for each declaration."""
