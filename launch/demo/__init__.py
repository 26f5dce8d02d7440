"""`paceline demo`: training on real data over a slow network, with and without Paceline, and a picture of it."""
