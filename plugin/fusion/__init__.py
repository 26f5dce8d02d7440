"""Merging of gradients: measured costs, plans, and the policies that make them."""
