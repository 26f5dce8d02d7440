"""What ranks of `paceline demo` do: training on real data, with the times of steps."""
