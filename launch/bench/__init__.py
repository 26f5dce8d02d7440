"""The command paceline bench."""
