"""The split exchange."""
