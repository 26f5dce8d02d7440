"""How a rank leaves the world in order: it takes part until all ranks are through."""
