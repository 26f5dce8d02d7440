"""What there is to choose from: one line for each thing that is declared in a room of its own."""
