"""Split exchange: reduce each gradient to one rank, update the parameter there, broadcast its new value."""
