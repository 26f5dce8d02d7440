"""Hub of rank 0: gathers the tasks, assigns their places, and notifies all when one has failed.

A connection to every task is kept until it ends, so that killed tasks and dead hosts are noticed too. The task of rank
0 uses the hub in the same way, over loopback.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paceline.errors import UserError
from paceline.launch.failures.verdict import Fate, Verdict, decide, ranks_text
from paceline.launch.passing import Ended
from paceline.launch.rank import interfaces, messages, proof
from paceline.launch.rank.channel import keep_alive
from paceline.launch.rank.messages import Challenge, Hello, Message, Refused, Start, Waiting, Welcome
from paceline.launch.rank.placement import Slot, Task, place

BACKLOG = 1024  # all tasks of a large job connect at the same moment
HELLO_LIMIT_S = 10.0  # limit for a connection to identify itself
SETTLE_S = 2.0  # time after the first reported failure until the first one is chosen
CAUSE_S = 8.0  # the same if all reported failures follow from another rank's failure or end
# Times at which waiting tasks get a list of the missing ranks; then every minute.
REPORT_S = (5.0, 15.0, 30.0, 60.0)
PORT_TIMEOUT_S = 10.0  # for a port that an earlier start of the same job may still hold
MOST_STRANGERS = 20  # that are reported
OVERDUE_CODE = 124  # of a job whose ranks run too long after rank 0: as timeout(1)

Serve = Callable[[Sequence[Slot], str, frozenset[str]], int]


@dataclass
class _Member:
    hello: Hello
    writer: asyncio.StreamWriter
    reached_at: str  # our address, as this task reached it
    address: str  # the task's, as we see it
    ended: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)


def bind(address: str, port: int, job: str) -> socket.socket:
    """Return a socket that listens on `port` of this address, "" for all. Raises UserError if the port is in use."""
    end_s = time.monotonic() + PORT_TIMEOUT_S
    while True:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address, port))
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            taken = error.errno == errno.EADDRINUSE
            if not taken or time.monotonic() > end_s:
                who = ": another program, perhaps rank 0 of another job, has it" if taken else ""
                raise UserError(
                    f"Rank 0 on {socket.gethostname()} cannot listen on port {port} ({error.strerror}){who}. "
                    f"This job: {job}.",
                    "Give this job a port of its own, the same for all its tasks: --rendezvous HOST:PORT.",
                ) from None
            time.sleep(0.2)
        else:
            return listening


class Hub:
    """Serves one job from its own thread, from `start` to `stop`.

    Args:
        size: number of ranks.
        job: the job's name.
        limit_s: limit for all ranks to connect.
        serve: starts Horovod's rendezvous server for these places, on this address ("" means all interfaces), for
            clients from these addresses; returns the port.
        say: shows the user a line.
    """

    def __init__(self, size: int, job: str, limit_s: float, serve: Serve, say: Callable[[str], None]) -> None:
        self._size, self._job, self._key = size, job, proof.key(job)
        self._limit_s, self._serve, self._say = limit_s, serve, say
        self._strangers: set[str] = set()  # reported ones
        self._members: dict[int, _Member] = {}
        self._fates: list[Fate] = []  # of tasks that have ended
        self.verdict: Verdict | None = None
        self._refused: Refused | None = None
        self._started = self._over = False
        self._server: asyncio.Server | None = None
        self._background: set[asyncio.Task[None]] = set()  # the loop itself does not keep them
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hub", daemon=True)

    def start(self, listening: socket.socket) -> None:
        """Begin to accept tasks on a listening socket."""
        self._thread.start()

        async def begin() -> None:
            self._server = await asyncio.start_server(
                self._meet, sock=listening, limit=messages.LIMIT_BYTES, backlog=BACKLOG
            )
            self._background.add(asyncio.create_task(self._gather()))

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result(HELLO_LIMIT_S)

    def running(self) -> list[str]:
        """Other ranks whose tasks have not ended, and their hosts."""
        return [
            f"rank {rank} on {member.hello.host}"
            for rank, member in sorted(self._members.items())
            if rank and not member.gone.is_set()
        ]

    def abort_waiting(self, after_s: float) -> None:
        """Fail the ranks still running `after_s` after rank 0 has ended well, and notify all."""

        def abort() -> None:
            for rank, member in sorted(self._members.items()):
                if rank and not member.gone.is_set():
                    how = f"still runs {after_s:g} s after rank 0 has ended"
                    self._ended(
                        Fate(rank, status=OVERDUE_CODE, how=how, remedy="--stay SECONDS gives ranks more time.")
                    )

        self._loop.call_soon_threadsafe(abort)

    def stop(self) -> None:
        """End all connections."""

        async def end() -> None:
            self._over = True  # connections that end from now on are expected
            if self._server is not None:
                self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(HELLO_LIMIT_S)

    # --- before the start

    async def _gather(self) -> None:
        """Report missing ranks to those that wait, and stop after the limit."""
        begin_s = time.monotonic()
        marks = [*REPORT_S, *range(120, int(self._limit_s) + 60, 60), self._limit_s]
        for mark in sorted(mark for mark in marks if mark <= self._limit_s):
            await asyncio.sleep(max(0.0, begin_s + mark - time.monotonic()))
            if self._started or self._over:
                return
            missing = [rank for rank in range(self._size) if rank not in self._members]
            await self._notify(Waiting(missing, len(self._members), mark))
        if not self._started:
            present = ", ".join(f"{rank} on {one.hello.host}" for rank, one in sorted(self._members.items()))
            await self._abort(
                f"Of {self._size} ranks {len(self._members)} have come within {self._limit_s:g} s. Missing: "
                f"{ranks_text(missing).lower()}. Here: {present}.",
                "See whether the scheduler started these tasks and what they say; each is a `paceline rank` of its "
                "own. Slow starts: --wait SECONDS. Another number of tasks: --size.",
            )

    async def _abort(self, problem: str, remedy: str) -> None:
        """Refuse the start: all tasks get the reason, also those that come later."""
        if self._refused is None:
            self._over = True
            self._refused = Refused(problem, remedy)
            await self._notify(self._refused)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, from its first message to its end."""
        member: _Member | None = None
        try:
            member = await self._join(reader, writer)
            if member is not None:
                # Two may arrive at once, and each then counts both.
                if len(self._members) == self._size and not self._started:
                    await self._begin()
                await self._listen(member, reader)
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            pass  # a stranger, or a lost task: decided below
        except asyncio.CancelledError:
            return  # by `stop`; asyncio before 3.12 complains of a reader that ends by being cancelled
        finally:
            writer.close()
        if member is not None:
            await self._left(member)
            member.gone.set()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Member | None:
        keep_alive(writer.get_extra_info("socket"))
        nonce = proof.nonce()
        await _send(writer, Challenge(nonce, proof.fingerprint(self._job), messages.PROTOCOL))
        address = writer.get_extra_info("peername")[0]
        hello = self._proven(await asyncio.wait_for(reader.readline(), HELLO_LIMIT_S), nonce, address)
        if hello is None:
            here = f"Rank 0 on {socket.gethostname()}"
            remedy = "Give each job a port of its own: --rendezvous HOST:PORT."
            await _send(writer, Refused(f"{here} belongs to another job.", remedy, foreign=True, unproven=True))
            return None
        member = _Member(hello, writer, writer.get_extra_info("sockname")[0], address)
        wrong = self._refused or self._objection(member)
        if wrong is not None:
            await _send(writer, wrong)
            if not wrong.foreign:
                await self._abort(wrong.problem, wrong.remedy)
            return None
        self._members[hello.rank] = member
        await _send(writer, Welcome(proof.answer(self._key, hello.nonce, "hub")))
        return member

    def _proven(self, line: bytes, nonce: str, address: str) -> Hello | None:
        """Return the message of a task that knows the job and its secret; None for others, which are reported."""
        try:
            hello = messages.decode(line)
        except ValueError:
            if line:  # a probe of the port sends nothing
                self._report(f"a program on {address}, which is not `paceline rank`")
            raise
        if isinstance(hello, Hello) and proof.holds(self._key, nonce, "task", hello.proof):
            return hello
        who = f", which calls itself rank {hello.rank} on {hello.host}" if isinstance(hello, Hello) else ""
        self._report(f"a task on {address}{who}: it has another job or another {proof.SECRET_VARIABLE}")
        return None

    def _report(self, stranger: str) -> None:
        """Show each refused stranger once, for tasks try again; and not too many."""
        if stranger not in self._strangers and len(self._strangers) < MOST_STRANGERS:
            self._strangers.add(stranger)
            self._say(f"Rank 0 refused {stranger}.")

    def _objection(self, member: _Member) -> Refused | None:
        """Return why this task cannot be one of the job's; None if it can."""
        hello, other = member.hello, self._members.get(member.hello.rank)
        who = f"Rank {hello.rank} on {hello.host}"
        if self._started:
            return Refused(
                f"All {self._size} ranks of this job are there, and it has begun.",
                "If this task was started again after a failure, all others must be, too.",
                foreign=True,
            )
        if hello.size != self._size:
            return Refused(
                f"{who} counts {hello.size} ranks, rank 0 on {socket.gethostname()} counts {self._size}.",
                "Start all tasks in one go, or give all of them the same --size.",
            )
        if other is not None:
            return Refused(
                f"Rank {hello.rank} is there twice: on {other.hello.host} and on {hello.host}.",
                "Each task needs a number of its own: see the variables that `paceline rank --dry-run` shows.",
            )
        if hello.machine != interfaces.machine() and interfaces.is_loopback(hello.address):
            return Refused(
                f"{who} reached rank 0 on {socket.gethostname()} over loopback ({hello.address}), which no network "
                "leads to.",
                "Name rank 0's network address for all tasks: --rendezvous ADDRESS:PORT.",
            )
        return None

    # --- the start

    async def _begin(self) -> None:
        """Start the job: every task gets its place."""
        self._started = True
        hellos = [member.hello for member in self._members.values()]
        slots = place([Task(one.rank, one.host, one.machine, one.local_rank) for one in hellos])
        address = self._address()
        try:
            port = self._serve(slots, address, frozenset(one.address for one in self._members.values()) | {address})
        except OSError as error:
            self._started = False
            await self._abort(
                f"Horovod's rendezvous server does not start on {socket.gethostname()}: {error}.",
                "See whether rank 0's host has free ports.",
            )
            return
        for rank, member in self._members.items():
            loopback = interfaces.is_loopback(member.reached_at)
            at = (address or "127.0.0.1") if loopback else ""
            await _send(member.writer, Start(slots[rank], port, self._interface_for(member), at))

    def _address(self) -> str:
        """Return the address by which all tasks can reach Horovod's rendezvous server; "" if they need several."""
        outside = {one.reached_at for one in self._members.values() if not interfaces.is_loopback(one.reached_at)}
        return outside.pop() if len(outside) == 1 else "" if outside else "127.0.0.1"

    def _interface_for(self, member: _Member) -> str:
        """Return the interface for a task on loopback: the one on which other hosts reach us, if there are any."""
        if not interfaces.is_loopback(member.hello.address):
            return ""
        outside = (one.reached_at for one in self._members.values() if not interfaces.is_loopback(one.hello.address))
        return interfaces.of_address(next(outside, member.hello.address))

    # --- the end

    async def _listen(self, member: _Member, reader: asyncio.StreamReader) -> None:
        """Receive the end of a task."""
        while line := await reader.readline():
            message = messages.decode(line)
            if isinstance(message, Ended):
                member.ended = True
                rank = member.hello.rank
                self._ended(Fate(rank, message.failed, message.code, asked=message.asked, tail=message.tail))

    async def _left(self, member: _Member) -> None:
        """Handle a connection that has ended."""
        hello = member.hello
        if member.ended or self._over:
            return
        if self._started:
            how = "is gone: its task was killed or its host died"
            self._ended(
                Fate(hello.rank, status=1, how=how, remedy="The log of its host, or its scheduler, may tell why.")
            )
        else:
            await self._abort(
                f"Rank {hello.rank} on {hello.host} left before all {self._size} ranks were there.",
                "Its own output says why.",
            )

    def _ended(self, fate: Fate) -> None:
        self._fates.append(fate)
        if fate.status and sum(one.status != 0 for one in self._fates) == 1:
            self._background.add(asyncio.create_task(self._settle()))

    async def _settle(self) -> None:
        begin_s = time.monotonic()
        while len(self._fates) < self._size:
            known = any(one.status == 0 or one.is_cause or one.is_silent for one in self._fates)
            if time.monotonic() > begin_s + SETTLE_S + (0 if known else CAUSE_S):
                break
            await asyncio.sleep(0.05)
        self._over = True
        hosts = {rank: member.hello.host for rank, member in self._members.items()}
        self.verdict = decide(self._fates, hosts, code=1)
        await self._notify(self.verdict)

    async def _notify(self, message: Message) -> None:
        """Send a message to all connected tasks; the readers of the others notice the loss."""
        # Rank 0 last: its task stops us when it has the message.
        for _, member in sorted(self._members.items(), reverse=True):
            try:
                await _send(member.writer, message)
            except OSError:
                pass


async def _send(writer: asyncio.StreamWriter, message: Message) -> None:
    # Written at once as far as the system accepts it; a task that does not read must not stop the others.
    writer.write(messages.encode(message))
    try:
        await asyncio.wait_for(writer.drain(), 1.0)
    except asyncio.TimeoutError:
        pass
