"""Networks of real sizes, whose layers sleep (sleeping.py) or compute (computing.py)."""
