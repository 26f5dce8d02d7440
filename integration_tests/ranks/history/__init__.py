"""Histories of trainings, and their checks."""
