"""Failures of ranks under horovodrun: which rank failed first, why, and how much of their output a terminal shows."""
