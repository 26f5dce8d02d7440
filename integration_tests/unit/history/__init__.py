"""Checksums and files of histories."""
