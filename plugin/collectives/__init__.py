"""What is known of collectives without running them: bounds, and networks as they were measured."""
