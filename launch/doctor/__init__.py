"""`paceline doctor`: checks of this machine and between hosts, with remedies."""
