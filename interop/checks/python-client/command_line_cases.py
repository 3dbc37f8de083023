"""`rmq produce` and `rmq consume`, beside stock consumers and producers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from interop.support.cases import MismatchError, expect
from interop.support.expectations import expect_once, expect_sent
from interop.support.java_messages import Outgoing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from python_session import PythonSession

PART: Final = "command line"
ROOT: Final = Path(__file__).resolve().parent.parent.parent.parent
TIMEOUT_S: Final = 40


async def run_command_line_cases(session: PythonSession) -> None:
    await _produce(session)
    await _consume(session)
    await _follow(session)


async def _produce(session: PythonSession) -> None:
    with session.operation(PART, "rmq produce: a line is a message"):
        await session.create_topic("PyLines")
        lines = [f"line {n}" for n in range(200)]
        await run_rmq(
            ["produce", "-n", session.nameserver, "PyLines", "--tag", "TagA", "--key", "all"],
            "".join(f"{line}\n" for line in lines),
        )
        received = await session.reader.read_topic("PyLines", count=200)
        wanted = [Outgoing("PyLines", line.encode(), "TagA", "all") for line in lines]
        expect_once(received, wanted)

    with session.operation(PART, "rmq consume prints what rmq produce sent"):
        output = await run_rmq(
            ["consume", "-n", session.nameserver, "PyLines", "--from", "earliest"], ""
        )
        expect("lines", sorted(output.splitlines()), sorted(lines))


async def _consume(session: PythonSession) -> None:
    await session.create_topic("PyPrinted")
    messages = [
        Outgoing(
            "PyPrinted", f"printed {n}".encode(), f"Tag{n % 2}", f"k-{n}", properties={"n": str(n)}
        )
        for n in range(10)
    ]
    expect_sent(await session.java.send(*messages))
    base = ["consume", "-n", session.nameserver, "PyPrinted", "--from", "earliest"]

    with session.operation(PART, "rmq consume: bodies of a stock producer, by tag, by SQL92, some"):
        everything = sorted((await run_rmq(base, "")).splitlines())
        expect("all", everything, sorted(m.body.decode() for m in messages))
        tagged = sorted((await run_rmq([*base, "--tag", "Tag1"], "")).splitlines())
        expect("tag", tagged, sorted(m.body.decode() for m in messages if m.tags == "Tag1"))
        matched = sorted((await run_rmq([*base, "--sql", "n >= 7"], "")).splitlines())
        expect("SQL", matched, ["printed 7", "printed 8", "printed 9"])
        some = (await run_rmq([*base, "--count", "3"], "")).splitlines()
        expect("count", len(some), 3)

    with session.operation(PART, "rmq consume --json, and back through rmq produce --json"):
        output = await run_rmq([*base, "--json"], "")
        rows = [json.loads(line) for line in output.splitlines()]
        expect("messages", len(rows), 10)
        await session.create_topic("PyCopied")
        await run_rmq(["produce", "-n", session.nameserver, "PyCopied", "--json"], output)
        copies = [
            Outgoing("PyCopied", m.body, m.tags, m.keys, properties=m.properties) for m in messages
        ]
        expect_once(await session.reader.read_topic("PyCopied", count=10), copies)


async def _follow(session: PythonSession) -> None:
    with session.operation(PART, "rmq consume --follow: Ctrl-C commits, a stock consumer goes on"):
        await session.create_topic("PyFollowed", queues=2)
        messages = [Outgoing("PyFollowed", f"followed {n}".encode()) for n in range(20)]
        expect_sent(await session.java.send(*messages[:10]))
        command = _command(
            *("consume", "-n", session.nameserver, "PyFollowed", "--group", "py-followers"),
            *("--from", "earliest", "--follow"),
        )
        process = await trio.lowlevel.open_process(
            command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        printed = b""
        try:
            assert process.stdout is not None
            with trio.fail_after(TIMEOUT_S):
                while printed.count(b"\n") < 10:
                    chunk = await process.stdout.receive_some()
                    if not chunk:
                        raise MismatchError(f"it ended after {printed!r}")
                    printed += chunk
                process.send_signal(signal.SIGINT)
                await process.wait()
        finally:
            if process.poll() is None:
                process.kill()
            await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()
        expect("lines", sorted(printed.split(b"\n"))[1:], sorted(m.body for m in messages[:10]))
        expect_sent(await session.java.send(*messages[10:]))
        stock = session.driver.push_consumer("followers", group="py-followers", topic="PyFollowed")
        async with stock as consumer:
            expect_once(await consumer.wait_received(10), messages[10:])


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rmq", *arguments]


async def run_rmq(arguments: Sequence[str], text: str) -> str:
    """Run a command to its end; return what it printed."""
    with trio.fail_after(TIMEOUT_S):
        done = await trio.run_process(
            _command(*arguments),
            stdin=text.encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    if done.returncode:
        errors = done.stderr.decode(errors="replace")[-1000:]
        raise MismatchError(f"rmq {arguments[0]} ended with {done.returncode}: {errors}")
    return done.stdout.decode()
