"""Training scripts of `paceline demo`: real data, with the times of steps."""
