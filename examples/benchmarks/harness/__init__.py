"""The harness of all benchmarks: systems run in turn, and ratios are formed within each turn.

system.py   what is compared: a setup function and the environment of its ranks
place.py    who a rank is
hosts.py    where ranks run: this machine or emulated hosts
team.py     the ranks of one system, told when to run
rank.py     the program of a rank; connections.py connects ranks, usage.py counts what they use
turn.py     what one system gave in one turn
turns.py    the loop: systems in turn, until their ratios are known well enough
ratio.py    ratios, and medians with bootstrap intervals
report.py   JSON and tables
"""
