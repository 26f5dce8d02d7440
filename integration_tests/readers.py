"""Whatever bytes arrive, the readers of other ranks' messages read them or refuse them: libFuzzer, for a given time.

    python -m integration_tests.readers --minutes 30        (needs clang with libFuzzer, and cmake)

Builds the core with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer. unit/cpp/fuzz/readers.cc has readers:
plans, messages about lost ranks, coordination rounds, marks in names, settings, encoded values, and JSON that we write.
Each gets the same time, and inputs found once are kept for the next run (build/readers/inputs). A finding ends its
reader; the input is kept. Files and texts that Python reads are in unit/test_mangled_input.py.
"""

from __future__ import annotations

import argparse
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from integration_tests.support.packages import ROOT

BUILD_TIMEOUT_S = 1800
OVERFLOW = "overflow"  # the fault made on purpose


def _plan(timeout_s: float, groups: list[float], parts: list[float]) -> bytes:
    values = [1, 1, timeout_s, len(groups), *[0.0] * 8, *groups, *parts]
    return struct.pack(f"={len(values)}d", *values)


def _setting(*fields: str) -> bytes:
    return "".join(f"{field}\x1f" for field in fields).encode()


# Valid inputs of each reader of readers.cc.
SEEDS: dict[str, list[bytes]] = {
    "plan": [_plan(0.05, [1, 1, 2], [0, 0, 1]), _plan(1, [1, 2, 0], [1, 3, 0])],
    "watch": [struct.pack("=II", word, 3) + b"123" for word in range(1, 9)],
    "round": [struct.pack("=QII", 7, operation, 3) + bytes(range(24)) for operation in (1, 2)],
    "name": [b"gradient.>q8_plain_ring>weight", b">bf16>", b">none_auto>x", b">q8_horovod>"],
    "settings": [2 * (_setting("PACELINE_EXCHANGE", "solo", "sync") + _setting("torch version", "2", "1"))],
    "json": ['"quoted" \\ \n\x00 äöü'.encode()],
    "codec": [bytes(range(256)) * 3],
    OVERFLOW: [bytes([77]) * 4],
}


def build(folder: Path) -> Path:
    """Build the program of all readers and return its path."""
    command = ["cmake", "-S", str(Path(__file__).parent / "unit/cpp"), "-B", str(folder), "-DSANITIZE=fuzzer"]
    subprocess.run([*command, "-DCMAKE_CXX_COMPILER=clang++"], check=True, timeout=60)
    command = ["cmake", "--build", str(folder), "--target", "readers", "--parallel", "2"]
    subprocess.run(command, check=True, timeout=BUILD_TIMEOUT_S)
    return folder / "readers"


def run(program: Path, reader: str, time_s: float) -> tuple[bool, str]:
    """Return whether the reader survived, and libFuzzer's output."""
    inputs = program.parent / "inputs" / reader
    inputs.mkdir(parents=True, exist_ok=True)
    for place, seed in enumerate(SEEDS[reader]):
        (inputs / f"seed-{place}").write_bytes(seed)
    command = [str(program), str(inputs), f"-max_total_time={time_s:.0f}", "-max_len=4096", "-timeout=20"]
    command += [f"-artifact_prefix={program.parent}/finding-{reader}-", "-use_value_profile=1", "-print_final_stats=1"]
    done = subprocess.run(
        command, env={**os.environ, "READER": reader}, capture_output=True, text=True, timeout=time_s + 120
    )
    return done.returncode == 0, done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--only", choices=[name for name in SEEDS if name != OVERFLOW], help="one reader")
    arguments, console = parser.parse_args(), Console()
    program = build(ROOT / "build/readers")
    survived, output = run(program, OVERFLOW, 10)
    assert not survived, "an overflow that was made on purpose was not reported"
    assert "heap-buffer-overflow" in output, output[-3000:]
    console.print("An overflow made on purpose was reported.")
    readers = [arguments.only] if arguments.only else [name for name in SEEDS if name != OVERFLOW]
    found = 0
    for reader in readers:
        survived, output = run(program, reader, 60 * arguments.minutes / len(readers))
        if not survived:
            console.print(f"{reader}: FINDING\n{output[-5000:]}", markup=False, highlight=False)
            found += 1
            continue
        counts = dict(re.findall(r"stat::(\w+):\s+(\d+)", output))
        console.print(f"{reader}: {int(counts['number_of_executed_units']):,} inputs, no finding", highlight=False)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
