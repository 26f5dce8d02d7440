"""Scripts as users write them, on real data."""
