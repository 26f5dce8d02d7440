"""What `paceline run` says of the start of a job, by the lines of its ranks and the time that passes."""

from __future__ import annotations

import io

import pytest

from paceline.failure.reports import Came, Reduced, Report
from paceline.launch import horovodrun, start, status
from paceline.launch import hosts as named

TWO_HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}


class Told:
    """A start under way, its clock in our hand; what stays of it."""

    def __init__(self, hosts: dict[int, str]) -> None:
        self.now_s = 100.0
        self.notes: list[str] = []
        self.start = start.Start(hosts, status.StatusLine(io.StringIO()), self.notes.append, lambda: self.now_s)

    def after(self, passed_s: float, *reports: tuple[int, Report]) -> None:
        """So long after the start these reports come."""
        self.now_s = 100.0 + passed_s
        for rank, report in reports:
            self.start.heard(rank, report)
        self.start.tick()


def test_hosts_are_up_when_all_their_ranks_have_come() -> None:
    told = Told(TWO_HOSTS)
    told.after(1, (0, Came("a")), (2, Came("b")))
    told.after(2, (1, Came("a")))
    assert told.notes == []
    told.after(3.04, (3, Came("b")))
    assert told.notes == ["Up after 3.0 s: a, b, with 4 ranks."]
    told.after(4.56, (0, Reduced()), (0, Reduced()))
    assert told.notes[1:] == ["First step after 4.6 s: rank 0 has its first allreduce."]


def test_a_start_that_takes_long_names_who_is_missing() -> None:
    told = Told(TWO_HOSTS)
    told.after(5, *((rank, Came("x")) for rank in (0, 1, 3)))
    told.after(14)
    assert told.notes == []
    told.after(16)
    told.after(59)
    assert told.notes == ["Starting: 1 of 2 hosts up, waiting for b (rank 2). 16 s"]
    told.after(61)
    assert len(told.notes) == 2
    told.start.ended(1)
    assert told.notes[2:] == ["Never came to hvd.init(): b (rank 2)."]


def test_jobs_that_end_well_or_have_not_begun_are_not_spoken_of() -> None:
    told = Told(TWO_HOSTS)
    told.start.ended(1)  # horovodrun says why nobody came
    told.after(1, *((rank, Came(host)) for rank, host in TWO_HOSTS.items()))
    told.after(100)
    told.start.ended(1)
    assert told.notes == ["Up after 1.0 s: a, b, with 4 ranks."]


def test_hosts_that_only_the_ranks_know() -> None:
    told = Told({})
    told.after(2, (0, Came("a")), (1, Came("b")))
    told.after(16)
    told.after(17, (0, Reduced()))
    told.start.ended(1)
    assert told.notes == [
        "Starting: 2 ranks up on a, b. 16 s",
        "First step after 17.0 s: rank 0 has its first allreduce.",
    ]


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        ("-np 3", {"localhost": [0, 1, 2]}),
        ("-np 3 -H a:2,b:2", {"a": [0, 1], "b": [2]}),
        ("-np 2 --min-np 1 --max-np 4 --host-discovery-script ./hosts.sh", {}),
        ("-np 2 --hostfile {file}", {"c": [0], "d": [1]}),
    ],
)
def test_hosts_are_dealt_out_as_horovodrun_does(
    words: str, hosts: dict[str, list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("hosts") / "hosts"
    file.write_text("c slots=1\nd slots=4\n")
    asked = horovodrun.parsed(words.format(file=file).split(), ["true"])
    assert start.by_host(start.ranks_of_hosts(asked, named.asked_for(asked))) == hosts


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("no terminal after all")

    def say(self, text: str) -> None:
        self.write(text)


@pytest.mark.parametrize(
    ("shown", "written", "screen"),
    [
        # What ranks say pushes the status line down.
        (["1 of 2", "1 of 2"], [("hello\n", "2 of 2"), ("", "")], "1 of 2\r\x1b[Khello\n1 of 2\r\x1b[K2 of 2\r\x1b[K"),
        # A line without its end is left alone.
        (["x" * 200], [(" 10%\r", "2 of 2"), ("100%\n", "2 of 2")], "x" * 79 + "\r\x1b[K 10%\r100%\n2 of 2"),
    ],
)
def test_status_gives_way_to_what_ranks_say(
    shown: list[str], written: list[tuple[str, str]], screen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = _Terminal()
    line = status.StatusLine(terminal)
    write = line.around(terminal.say)
    for text in shown:
        line.show(text)
    for said, text in written:
        if said:
            write(said)
        line.show(text)
    assert terminal.getvalue() == screen
