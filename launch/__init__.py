"""The `paceline` command and what it starts."""
