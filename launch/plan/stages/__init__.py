"""The command paceline plan stages."""
