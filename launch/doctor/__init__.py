"""`paceline doctor`: what works on this machine and between hosts, and what to do about the rest."""
