"""Broadcast, saved and resumed state."""
