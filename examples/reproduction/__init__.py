"""Published numbers of the five papers, recomputed by Paceline's own models. Not part of an installed Paceline.

    python -m examples.reproduction --output docs/measurements/reproduction.md

rows.py       a row: published value, function that recomputes it, tolerance, verdict
mg_wfbp.py, pipe_sgd.py, eager_sgd.py, linear_pipelining.py, pipemare.py   rows of one paper each
googlenet.py, late_ranks.py, stability.py   simulations that rows use
measured.py   cells of the tables in docs/measurements
papers.py     all papers
own.py        our own measurements, simulated: own_steps.py, own_ranks.py, own_network.py
tables.py, page.py, command.py   tables on the terminal, the page, the command
"""
