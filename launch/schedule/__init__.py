"""The command paceline schedule."""
