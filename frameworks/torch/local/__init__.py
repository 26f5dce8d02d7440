"""Models that are averaged now and then."""
