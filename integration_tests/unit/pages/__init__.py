"""Tests of the code on the documentation pages."""
