"""The command paceline plan."""
