"""History of a training: what each rank submitted and received, for a check afterwards (docs/guides/history.md)."""
