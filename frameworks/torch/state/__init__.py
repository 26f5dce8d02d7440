"""What is broadcast, saved and resumed."""
