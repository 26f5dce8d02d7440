"""The `paceline` command and the programs that it starts."""
