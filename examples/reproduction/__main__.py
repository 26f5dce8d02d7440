"""`python -m examples.reproduction`, run in the folder of a clone whose Paceline is installed by `make`."""

from __future__ import annotations

from paceline.examples.reproduction.command import main

if __name__ == "__main__":
    main.main()
