"""Failures as a rank sees them: what it reports to its launcher, and what it shows of an error that nobody caught."""
