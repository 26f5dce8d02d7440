"""What is behind `python -m examples.benchmarks all`: every row of docs/benchmarks.md, measured one after another.

rows.py       the rows: a `python -m examples.benchmarks` command line each
measuring.py  one of them, in a process of its own
kept.py       what was measured, in a file for each row; how far a run came
tables.py     its tables, those of the row's own command; markdown.py for a page
page.py       a page with them, between markers
"""
