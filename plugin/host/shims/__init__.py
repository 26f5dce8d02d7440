"""What Paceline adds to Horovod's Python package when it builds it; works whether or not Paceline is installed."""
