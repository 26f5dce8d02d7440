"""`paceline run`: flags, hosts, environment of the ranks, passed options, and messages about the start."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from pathlib import Path

import pytest

from paceline import config
from paceline.errors import UserError
from paceline.failure.reports import Came, Reduced, Report
from paceline.fusion import plan_file
from paceline.fusion.resolve import resolve
from paceline.launch import flags, horovodrun, hosts, passing, processes, start, status
from paceline.launch import hosts as named
from paceline.launch.environment import environment, remark

OURS = {"--record": 1, "--progress": 0, "--no-progress": 0}
THEIRS = {"-np": 1, "--num-proc": 1, "-p": 1, "--gloo": 0, "--cycle-time-ms": 1, "--cache-capacity": 1, "--range": 2}


def apart(line: str) -> tuple[str, str, str]:
    parts = flags.split(line.split(), OURS, THEIRS, "paceline run")
    return " ".join(parts.ours), " ".join(parts.theirs), " ".join(parts.command)


@pytest.mark.parametrize(
    ("line", "ours", "theirs", "command"),
    [
        ("-np 2 python a.py", "", "-np 2", "python a.py"),
        ("--record t -np 2 python a.py", "--record t", "-np 2", "python a.py"),
        ("-np 2 --record t --gloo python a.py", "--record t", "-np 2 --gloo", "python a.py"),
        ("--record=t -np 2 --no-progress a.py", "--record=t --no-progress", "-np 2", "a.py"),
        # Flags of the command are the command's own.
        ("-np 2 python a.py --record x --wrong", "", "-np 2", "python a.py --record x --wrong"),
        # A value may look like one of our flags or like a command.
        ("-np --record python", "", "-np --record", "python"),
        ("--range 1 5 python", "", "--range 1 5", "python"),
        # horovodrun's own habits: values attached, long flags cut short where that is unambiguous.
        ("-p22 --num-proc=2 a.py", "", "-p22 --num-proc=2", "a.py"),
        ("--num 2 --cyc 1 a.py", "", "--num 2 --cyc 1", "a.py"),
        ("-np 2 --record t -- -odd --name", "--record t", "-np 2", "-odd --name"),
        ("", "", "", ""),
    ],
)
def test_line_is_taken_apart(line: str, ours: str, theirs: str, command: str) -> None:
    assert apart(line) == (ours, theirs, command)


@pytest.mark.parametrize(
    ("line", "flag", "remedy"),
    [
        ("--recrd t a.py", "--recrd", "Did you mean --record?"),
        ("--no-progres a.py", "--no-progres", "Did you mean --no-progress?"),
        ("--c 1 a.py", "--c", "horovodrun --help"),  # two of horovodrun's begin like that
        ("-z3 a.py", "-z3", "horovodrun --help"),
    ],
)
def test_flag_that_nobody_knows_is_refused(line: str, flag: str, remedy: str) -> None:
    with pytest.raises(UserError) as caught:
        apart(line)
    assert caught.value.problem.endswith(f"option {flag}.")
    assert remedy in caught.value.remedy


def test_horovodruns_flags_are_those_of_the_installed_one_and_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    parsers: list[argparse.ArgumentParser] = []
    parse = argparse.ArgumentParser.parse_args

    def kept(parser: argparse.ArgumentParser) -> argparse.Namespace:
        parsers.append(parser)
        return parse(parser)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", kept)
    horovodrun.parsed(["-np", "1"], ["true"])
    installed = {name: action.nargs for action in parsers[0]._actions for name in action.option_strings}
    assert {name: 1 if nargs is None else nargs for name, nargs in installed.items()} == horovodrun.FLAGS
    # Flags of ours and of horovodrun do not collide.
    assert {flag for option in config.OPTIONS for flag in option.flags}.isdisjoint(horovodrun.FLAGS)


@pytest.mark.parametrize(
    ("script", "code"), [("echo one; echo two >&2; exit 5", 5), ("echo two; echo one; kill -SEGV $$", 128 + 11)]
)
def test_call_gives_lines_and_the_exit_code(script: str, code: int) -> None:
    lines: list[str] = []
    assert (processes.call(["sh", "-c", script], os.environ, lines.append), sorted(lines)) == (code, ["one\n", "two\n"])


def test_call_ends_what_exceeds_its_limit_with_all_its_children() -> None:
    lines: list[str] = []
    with pytest.raises(UserError, match="did not end within 3 s"):
        processes.call(["sh", "-c", "sleep 600 & echo $!; wait"], os.environ, lines.append, limit_s=3)
    child = lines[0].strip()
    limit = time.monotonic() + 90  # it was killed, which takes effect when it next runs
    while not _gone(Path(f"/proc/{child}/stat")):
        assert time.monotonic() < limit, "a child outlived the command"
        time.sleep(0.01)


def _gone(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def reported(monkeypatch: pytest.MonkeyPatch, variable: str | None = None, **given: str) -> str | None:
    """PACELINE_FUSION of the ranks where the launcher got this variable and these flags."""
    monkeypatch.delenv("PACELINE_FUSION", raising=False)
    if variable is not None:
        monkeypatch.setenv("PACELINE_FUSION", variable)
    return environment(config.read(flags=given), given).get("PACELINE_FUSION")


def test_names_of_policies_pass_unchanged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert reported(monkeypatch) is None
    assert reported(monkeypatch, fusion="optimal") == "optimal"
    assert reported(monkeypatch, variable="mgwfbp") == "mgwfbp"
    assert reported(monkeypatch, variable="mgwfbp", fusion="single") == "single"
    assert capsys.readouterr().err == ""
    assert reported(monkeypatch, fusion="optimul") == "optimul", "the script may register it"
    remark(config.read(flags={"fusion": "optimul"}), starts=True)
    assert "optimul is known here. Did you mean optimal? It will do if the script" in capsys.readouterr().err


@pytest.mark.parametrize("by_flag", [True, False])
@pytest.mark.parametrize("spec", ["policies_module:halves", "file:plan.json"])
def test_policies_are_sent_by_value(spec: str, by_flag: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [[f"allreduce.encoder.layer.{n}.attention.{part}" for part in ("weight", "bias")] for n in range(500)]
    plan_file.write(tmp_path / "plan.json", "optimal", groups)
    (tmp_path / "policies_module.py").write_text("def halves(gradients, costs):\n    return [[0, 1], [2]]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    here = resolve(spec)
    text = reported(monkeypatch, fusion=spec) if by_flag else reported(monkeypatch, variable=spec)
    for file in tmp_path.iterdir():
        file.unlink()
    sys.modules.pop("policies_module", None)
    assert text is not None
    there = resolve(text)
    plans = spec.startswith("file:")
    assert (there.name, there.digest, there.keeps_order) == (spec, here.digest, plans)
    assert there.function is not None
    assert there.function([], None) == (groups if plans else [[0, 1], [2]])  # type: ignore[arg-type]
    assert "policies_module" not in sys.modules
    assert reported(monkeypatch, fusion=text) == text, "a run within a run"


TWO_HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}


class Reported:
    """A start in progress with a fake clock, and its notes."""

    def __init__(self, hosts: dict[int, str]) -> None:
        self.now_s = 100.0
        self.notes: list[str] = []
        self.start = start.Start(hosts, status.StatusLine(io.StringIO()), self.notes.append, lambda: self.now_s)

    def after(self, passed_s: float, *reports: tuple[int, Report]) -> None:
        """Reports that arrive a given time after the start."""
        self.now_s = 100.0 + passed_s
        for rank, report in reports:
            self.start.heard(rank, report)
        self.start.tick()


def test_hosts_are_up_when_all_their_ranks_have_come() -> None:
    reported = Reported(TWO_HOSTS)
    reported.after(1, (0, Came("a")), (2, Came("b")))
    reported.after(2, (1, Came("a")))
    assert reported.notes == []
    reported.after(3.04, (3, Came("b")))
    assert reported.notes == ["Up after 3.0 s: a, b, with 4 ranks."]
    reported.after(4.56, (0, Reduced()), (0, Reduced()))
    assert reported.notes[1:] == ["First step after 4.6 s: rank 0 has its first allreduce."]


def test_a_start_that_takes_long_names_who_is_missing() -> None:
    reported = Reported(TWO_HOSTS)
    reported.after(5, *((rank, Came("x")) for rank in (0, 1, 3)))
    reported.after(14)
    assert reported.notes == []
    reported.after(16)
    reported.after(59)
    assert reported.notes == ["Starting: 1 of 2 hosts up, waiting for b (rank 2). 16 s"]
    reported.after(61)
    assert len(reported.notes) == 2
    reported.start.ended(1)
    assert reported.notes[2:] == ["Never came to hvd.init(): b (rank 2)."]


def test_jobs_that_end_well_are_not_spoken_of_and_ranks_may_alone_know_the_hosts() -> None:
    reported = Reported(TWO_HOSTS)
    reported.start.ended(1)  # horovodrun prints why no rank arrived
    reported.after(1, *((rank, Came(host)) for rank, host in TWO_HOSTS.items()))
    reported.after(100)
    reported.start.ended(1)
    assert reported.notes == ["Up after 1.0 s: a, b, with 4 ranks."]
    # Hosts that only the ranks know.
    reported = Reported({})
    reported.after(2, (0, Came("a")), (1, Came("b")))
    reported.after(16)
    reported.after(17, (0, Reduced()))
    reported.start.ended(1)
    assert reported.notes == [
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
        # Output of ranks moves the status line down.
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


class _Recorder(io.BytesIO):
    """Standard output that records each write and its time."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[bytes, float]] = []

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if data:
            self.writes.append((bytes(data), time.monotonic()))
        return len(data)


def run(script: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[bytes, float]], int]:
    recorder = _Recorder()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(recorder))
    command = passing.Command([sys.executable, "-uc", script], {"PATH": "/usr/bin:/bin"})
    ended = command.wait(lambda: False)
    return recorder.writes, ended.code


def test_what_has_no_end_of_line_is_shown_and_a_line_comes_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os, time\nos.write(1, b'10%'); time.sleep(2); os.write(1, b'20%'); raise SystemExit(3)"
    writes, code = run(script, monkeypatch)
    assert ([data for data, _ in writes], code) == ([b"10%", b"20%"], 3)
    (_, first_s), (_, second_s) = writes
    assert second_s - first_s > 0.5
    monkeypatch.setattr(passing, "LINE_LIMIT_S", 5.0)
    script = "import os, time\nfor word in (b'a', b'b', b'c\\nd', b'e\\n'): os.write(1, word); time.sleep(0.2)"
    writes, code = run(script, monkeypatch)
    assert ([data for data, _ in writes], code) == ([b"abc\n", b"de\n"], 0)


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
        ("a slots=two\n", "line 1: 'a slots=two' is not a host"),
        ("a slots=2\nb slots=1 fast\n", "line 2: 'b slots=1 fast' is not a host"),
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
