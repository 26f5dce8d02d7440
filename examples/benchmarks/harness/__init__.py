"""The harness of all benchmarks: systems run in turn, and ratios are formed within each turn.

system.py   a compared system: a setup function and the environment of its ranks
place.py    identity of a rank
hosts.py    where ranks run: this machine or emulated hosts
team.py     the ranks of one system, started and stopped by the controller
rank.py     the program of a rank; connections.py connects ranks, usage.py counts their resource usage
turn.py     figures of one system in one turn
turns.py    the loop: systems in turn, until their ratios are known precisely enough
ratio.py    ratios, and medians with bootstrap intervals
report.py   JSON and tables
"""
