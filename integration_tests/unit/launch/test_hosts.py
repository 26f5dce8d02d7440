"""Lists of hosts and host files, as users of Horovod, Open MPI, MPICH, PBS and LSF have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import UserError
from paceline.launch import horovodrun, hosts

FILES = [
    ("a slots=2\nb slots=1\n", {"a": 2, "b": 1}),
    ("# the job's\na slots=2  # fast\n\n   \nb\n", {"a": 2, "b": 1}),
    ("a slots=2 max_slots=4\nb max-slots=4 slots=3\n", {"a": 2, "b": 3}),  # Open MPI
    ("a:2\nb:1\n", {"a": 2, "b": 1}),  # MPICH
    ("a\na\nb\na\n", {"a": 3, "b": 1}),  # PBS and LSF: a line for each slot
    ("a 2\nb 1", {"a": 2, "b": 1}),
    ("10.0.0.1 slots=2\nn-1.example.org slots=2\n", {"10.0.0.1": 2, "n-1.example.org": 2}),
]


@pytest.mark.parametrize(("text", "found"), FILES)
def test_host_files(text: str, found: dict[str, int], tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    assert list(hosts.in_file(str(path)).items()) == list(found.items())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a slots=two\n", "line 1: 'a slots=two' is no host"),
        ("a slots=2\nb slots=1 fast\n", "line 2: 'b slots=1 fast' is no host"),
        ("a slots=1 slots=2\n", "line 1"),
        ("me@a slots=2\n", "found 'me@a'"),
        ("::1 slots=2\n", "IPv4 addresses, found '::1'"),
        ("# nobody\n\n", "names no host"),
    ],
)
def test_host_files_that_are_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        hosts.in_file(str(path))


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("-np 2 -H a,b", "-np 2 -H a:1,b:1"),
        ("-H a:1,a:1 -np 2", "-H a:2 -np 2"),
        ("-np 2 --hosts=a,b --verbose", "-np 2 -H a:1,b:1 --verbose"),
        ("-np 2 -Ha,b", "-np 2 -Ha:1,b:1"),
        ("-np 2 --hostfile {file}", "-np 2 -H c:1,d:2"),
        ("-np 2 --hostfile={file} -p 22", "-np 2 -H c:1,d:2 -p 22"),
        ("-np 2 -hostfile {file}", "-np 2 -H c:1,d:2"),
        ("--output-filename {file} -np 2 --hostf {file}", "--output-filename {file} -np 2 -H c:1,d:2"),
        ("-np 2", "-np 2"),
    ],
)
def test_horovodrun_gets_what_it_takes(words: str, given: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("c\nd\nd\n")
    arguments = words.format(file=path).split()
    asked = horovodrun.parsed(arguments, ["true"])
    assert hosts.plain(arguments, asked, hosts.asked_for(asked)) == given.format(file=path).split()
