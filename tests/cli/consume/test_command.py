"""`rmq consume`: what is printed, what is committed, and when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.cli.common.byte_output import OutputError, wait_reader_gone, write_out
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.usage import UsageError
from rmq.cli.consume import reading as consume_reading
from rmq.cli.consume.command import consume
from rmq.cli.consume.places import Place, Start
from rmq.cli.consume.reading import Wanted
from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.subscription_set import Sql
from rmq.client.core.messages import Message
from rmq.client.trio.opening import open_admin, open_lite_pull_consumer, open_producer
from rmq.errors import NoRouteError, ResponseError
from tests.cli.client_kit import DEADLINE_S, environment, running
from tests.client.admin_kit import queue, register, send
from tests.client.cluster_kit import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmq.client.core.consuming.subscription_set import Expression
    from rmq.client.tasks.admin import AdminClient
    from tests.cli.client_kit import Processes
    from tests.cli.conftest import RunHere
    from tests.client.cluster_kit import Cluster


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with running(tmp_path_factory.mktemp("consume")) as it:
        yield it


# --- as users meet it -------------------------------------------------------------------------


def test_a_reader_that_has_enough_ends_it(processes: Processes) -> None:
    # More than a pipe holds, so that the end is met while writing.
    line = b"x" * 1000
    processes.put(*[Message("Head", line)] * 500)
    process = processes.start("consume", "Head")
    assert process.stdout is not None
    assert process.stdout.readline() == line + b"\n"
    process.stdout.close()
    assert process.wait(timeout=DEADLINE_S) == ExitCode.PIPE_CLOSED
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()


def test_a_group_goes_on_where_it_was_stopped(processes: Processes) -> None:
    processes.put(*(Message("Shared", body) for body in (b"one", b"two", b"three")))
    process = processes.start("consume", "Shared", "--group", "readers", "--follow")
    assert process.stdout is not None
    assert sorted(process.stdout.readline() for _ in range(3)) == [b"one\n", b"three\n", b"two\n"]
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE_S)
    # Following has no other end.
    assert (process.returncode, output) == (ExitCode.OK, b"")
    assert b"Traceback" not in errors
    processes.put(Message("Shared", b"four"))
    done = processes.rmq("consume", "Shared", "--group", "readers")
    assert (done.returncode, done.stdout) == (0, b"four\n")
    assert processes.rmq("consume", "Shared", "--group", "readers").stdout == b""
    # Others do not mind.
    assert len(processes.rmq("consume", "Shared").stdout.splitlines()) == 4


def test_ctrl_c_before_the_count_is_there_is_told_by_the_code(processes: Processes) -> None:
    processes.put(Message("Few", b"only"))
    process = processes.start("consume", "Few", "--count", "2")
    assert process.stdout is not None
    assert process.stdout.readline() == b"only\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == ExitCode.INTERRUPTED


def test_json_tells_everything(processes: Processes) -> None:
    processes.put(
        Message("Json", b"hi", tag="t", keys=("k",), properties={"a": "1"}),
        Message("Json", b"\xff"),
    )
    done = processes.rmq("consume", "Json", "--json")
    first, second = sorted(
        map(json.loads, done.stdout.splitlines()), key=lambda line: "tag" in line
    )
    assert first["body_base64"] == "/w=="
    assert second["body"] == "hi"
    assert (second["tag"], second["keys"], second["properties"]) == ("t", ["k"], {"a": "1"})
    assert second["topic"] == "Json"
    assert second["system_properties"]["UNIQ_KEY"] == second["message_id"]
    assert {"broker", "queue_id", "queue_offset", "stored_at_ms", "born_host"} <= second.keys()


def test_conditions_and_tags_filter(processes: Processes) -> None:
    processes.put(
        *(
            Message("Filter", b"%d" % n, tag="odd" if n % 2 else "even", properties={"n": f"{n}"})
            for n in range(10)
        )
    )
    done = processes.rmq("consume", "Filter", "--sql", "n >= 7")
    assert sorted(done.stdout.split()) == [b"7", b"8", b"9"]
    done = processes.rmq("consume", "Filter", "--tag", "even || none")
    assert sorted(done.stdout.split()) == [b"0", b"2", b"4", b"6", b"8"]
    done = processes.rmq("consume", "Filter", "--group", "sql-readers", "--sql", "n < 2")
    assert sorted(done.stdout.split()) == [b"0", b"1"]
    done = processes.rmq("consume", "Filter", "--sql", "n >=")
    assert done.returncode == ExitCode.FAILURE
    assert b"CHECK_CLIENT_CONFIG" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["T"], ExitCode.USAGE, "give -n HOST:PORT", id="no-nameserver"),
        pytest.param(["no blanks", "-n", "h:1"], ExitCode.USAGE, "characters", id="topic"),
        pytest.param(["T", "-n", "h:1", "--group", "a b"], ExitCode.USAGE, "group", id="group"),
        pytest.param(["T", "-n", "h:1", "--count", "0"], ExitCode.USAGE, "from 1 on", id="count"),
        pytest.param(["T", "-n", "h:1", "--from", "x"], ExitCode.USAGE, "earliest", id="from"),
        pytest.param(
            ["T", "-n", "h:1", "--tag", "a", "--sql", "b"], ExitCode.USAGE, "exclude", id="two"
        ),
        pytest.param(["T", "-n", "127.0.0.1:1"], ExitCode.UNAVAILABLE, "127.0.0.1:1", id="nobody"),
    ],
)
def test_bad_arguments_are_explained(
    run_here: RunHere, arguments: list[str], code: ExitCode, message: str
) -> None:
    ended_with, _, errors = run_here("consume", *arguments)
    assert ended_with == code, errors
    assert message in errors
    assert "Traceback" not in errors


def test_standard_output_that_is_closed_or_full_is_told(processes: Processes) -> None:
    processes.put(Message("Closed", b"x"))
    for where, message in ((">&-", "is closed"), (">/dev/full", "No space left")):
        done = subprocess.run(
            [
                "sh",
                "-c",
                f"exec '{sys.executable}' -m rmq consume -n {processes.nameserver} Closed {where}",
            ],
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            env=environment(),
            check=False,
        )
        assert done.returncode == ExitCode.FAILURE
        assert message in done.stderr


# --- inside -----------------------------------------------------------------------------------


class Output:
    """Takes what is written."""

    def __init__(self) -> None:
        self.data = b""
        self.is_gone = trio.Event()
        self.written = trio.Event()

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.data += data
        if data:
            self.written.set()

    @property
    def lines(self) -> list[bytes]:
        return self.data.split(b"\n")[:-1]


def wanted(
    topic: str = "Orders",
    *,
    expression: Expression = "*",
    group: str | None = None,
    start: Start | None = None,
    count: int | None = None,
    follows: bool = False,
    is_json: bool = False,
) -> Wanted:
    return Wanted(
        topic=topic,
        expression=expression,
        group=group,
        start=start,
        count=count,
        follows=follows,
        is_json=is_json,
    )


async def consumed(it: Cluster, what: Wanted, code: ExitCode = ExitCode.OK) -> list[bytes]:
    """Return what is printed until the end."""
    output = Output()
    config = ClientConfig(nameservers=it.nameserver)
    with trio.fail_after(DEADLINE_S):
        assert await consume(config, what, output.write, output.is_gone.wait) == code
    return output.lines


async def fill(it: Cluster, admin: AdminClient, count: int, topic: str = "Orders") -> None:
    for number in range(count):
        await send(it, admin.client, topic, b"%d" % number)


async def test_it_stops_at_the_end_of_what_was_there(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        await fill(it, admin, 5)
        for group in (None, "readers"):
            async with trio.open_nursery() as nursery:

                async def keep_sending() -> None:
                    while True:
                        await send(it, admin.client, "Orders", b"later")

                nursery.start_soon(keep_sending)
                before = await admin.max_offset(queue("Orders"))
                lines = await consumed(it, wanted(group=group))
                nursery.cancel_scope.cancel()
            assert before <= len(lines) < await admin.max_offset(queue("Orders"))
            if group is not None:
                # What came later is for the next time.
                assert await admin.consumer_offset(group, queue("Orders")) == len(lines)


async def test_an_empty_topic_is_read_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders")
        assert await consumed(it, wanted()) == []
        assert await consumed(it, wanted(group="readers")) == []
        with pytest.RaisesGroup(NoRouteError, allow_unwrapped=True, flatten_subgroups=True):
            await consumed(it, wanted("Nothing"))
        with pytest.RaisesGroup(NoRouteError, allow_unwrapped=True, flatten_subgroups=True):
            await consumed(it, wanted("Nothing", follows=True))


async def test_a_tail_that_is_filtered_ends_too(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, enablePropertyFilter="true") as it,
        open_admin(it.nameserver) as admin,
    ):
        await admin.create_topic("Orders", queues=2)
        await send(it, admin.client, "Orders", b"yes", TAGS="a", n="1")
        for _ in range(100):
            await send(it, admin.client, "Orders", b"no", TAGS="b", n="2")
        assert await consumed(it, wanted(expression="a")) == [b"yes"]
        assert await consumed(it, wanted(expression=Sql("n = 1"))) == [b"yes"]
        assert await consumed(it, wanted(expression="a", group="readers")) == [b"yes"]
        # Nobody has to go through them again.
        assert await admin.consumer_offset("readers", queue("Orders")) == 101


async def test_where_to_begin(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        await fill(it, admin, 2)
        last = await admin.message_at(queue("Orders"), 1)
        assert last is not None
        after_ms = last.stored_at_ms + 1
        while trio.current_time() and _now_ms() <= after_ms:
            await trio.lowlevel.checkpoint()
        await send(it, admin.client, "Orders", b"new")
        assert await consumed(it, wanted(start=Start(Place.EARLIEST))) == [b"0", b"1", b"new"]
        assert await consumed(it, wanted(start=Start(Place.LATEST))) == []
        assert await consumed(it, wanted(start=Start(Place.TIME, after_ms))) == [b"new"]
        future = Start(Place.TIME, after_ms + 3_600_000)
        assert await consumed(it, wanted(start=future)) == []
        # A group that has not begun begins there, though brokers say 0 of it.
        assert await consumed(it, wanted(group="late", start=Start(Place.LATEST))) == []
        assert await admin.consumer_offset("late", queue("Orders")) == 3
        timed = wanted(group="timed", start=Start(Place.TIME, after_ms))
        assert await consumed(it, timed) == [b"new"]
        # One that has begun goes on.
        await send(it, admin.client, "Orders", b"more")
        assert await consumed(it, wanted(group="late", start=Start(Place.EARLIEST))) == [b"more"]
        assert await consumed(it, wanted(group="late", start=Start(Place.LATEST))) == []


def _now_ms() -> int:
    return int(datetime.now().timestamp() * 1000)  # noqa: DTZ005 - only its number counts


async def test_a_count_is_waited_for_and_no_more_is_consumed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        await fill(it, admin, 5)
        assert await consumed(it, wanted(group="readers", count=3)) == [b"0", b"1", b"2"]
        assert await admin.consumer_offset("readers", queue("Orders")) == 3
        output = Output()
        codes: list[int] = []
        async with trio.open_nursery() as nursery:

            async def wait_for_four() -> None:
                what = wanted(group="readers", count=4)
                config = ClientConfig(nameservers=it.nameserver)
                codes.append(await consume(config, what, output.write, output.is_gone.wait))

            nursery.start_soon(wait_for_four)
            with trio.fail_after(DEADLINE_S):
                await output.written.wait()
            await fill(it, admin, 5)
        assert output.lines == [b"3", b"4", b"0", b"1"]
        assert codes == [ExitCode.OK]
        assert await admin.consumer_offset("readers", queue("Orders")) == 7
        follows = wanted(count=2, follows=True)
        assert await consumed(it, follows) == [b"0", b"1"]


async def test_following_ends_when_the_reader_goes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        await fill(it, admin, 2)
        output = Output()
        config = ClientConfig(nameservers=it.nameserver)
        async with trio.open_nursery() as nursery:

            async def leave() -> None:
                await output.written.wait()
                output.is_gone.set()

            nursery.start_soon(leave)
            with trio.fail_after(DEADLINE_S), pytest.raises(BrokenPipeError):
                await consume(
                    config, wanted(group="readers", follows=True), output.write, output.is_gone.wait
                )
        # It had them all.
        assert await admin.consumer_offset("readers", queue("Orders")) == 2


async def test_what_could_not_be_written_is_not_consumed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        await fill(it, admin, 2)

        async def write(data: bytes) -> None:
            await trio.lowlevel.checkpoint()
            raise BrokenPipeError

        config = ClientConfig(nameservers=it.nameserver)
        with pytest.RaisesGroup(BrokenPipeError, flatten_subgroups=True):
            await consume(config, wanted(group="readers"), write, trio.sleep_forever)
        assert await consumed(it, wanted(group="readers")) == [b"0", b"1"]


async def test_members_of_a_group_share(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=2)
        async with open_lite_pull_consumer(it.nameserver, "readers") as other:
            await other.subscribe("Orders")
            with trio.fail_after(DEADLINE_S):
                while len(other.assignment) != 2:
                    await trio.lowlevel.checkpoint()
            for queue_id in range(2):
                await send(it, admin.client, "Orders", b"%d" % queue_id, queue_id=queue_id)
            # One of the two queues is left to us; which one, client ids decide.
            lines = await consumed(it, wanted(group="readers"))
            assert lines in ([b"0"], [b"1"])


async def test_a_body_that_cannot_be_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        await send(it, admin.client, "Orders", b"no zlib", sys_flag=1)
        await send(it, admin.client, "Orders", b"fine")
        assert await consumed(it, wanted(), ExitCode.FAILURE) == [b"fine"]
        assert "cannot be read: it is no zlib data" in capsys.readouterr().err
        bad, fine = map(json.loads, await consumed(it, wanted(is_json=True)))
        assert bad["body_error"].startswith("it is no zlib data")
        assert bad["body_base64"] == "bm8gemxpYg=="
        assert fine["body"] == "fine"


async def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        await fill(it, admin, 1)
        await register(it, admin.client, "broker-b", 0, "127.0.0.1:1", "Orders")
        with pytest.raises(BaseExceptionGroup) as caught:
            await consumed(it, wanted())
        assert "broker-b at 127.0.0.1:1" in str(caught.value.exceptions[0])


async def test_a_broker_that_dies_on_the_way_is_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_reading, "FAILING_S", 0.3)
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        await fill(it, admin, 1)
        output = Output()
        config = ClientConfig(nameservers=it.nameserver)

        async def write(data: bytes) -> None:
            await output.write(data)
            if data:
                await it.kill()

        with trio.fail_after(DEADLINE_S), pytest.raises(BaseExceptionGroup):
            await consume(config, wanted(count=2), write, trio.sleep_forever)
        assert output.lines == [b"0"]


async def test_a_broker_that_does_not_filter_so_says_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        for group in (None, "readers"):
            with pytest.RaisesGroup(ResponseError, flatten_subgroups=True):
                await consumed(it, wanted(expression=Sql("a = 1"), group=group))


# --- parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(Place.EARLIEST)),
        ("latest", Start(Place.LATEST)),
        ("0", Start(Place.TIME, 0)),
        ("1717135200000", Start(Place.TIME, 1717135200000)),
        ("2024-05-31T08:00:00+02:00", Start(Place.TIME, 1717135200000)),
        ("2024-05-31T06:00:00.250Z", Start(Place.TIME, 1717135200250)),
    ],
)
def test_times_are_read(text: str, start: Start) -> None:
    assert Start.parse(text) == start


def test_a_time_without_an_offset_is_local() -> None:
    local = datetime(2024, 5, 31, 8, 0)  # noqa: DTZ001 - that is the point
    assert Start.parse("2024-05-31 08:00").time_ms == int(local.timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "soon", "-5", "1e9", "99999999999999999", "2024-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--from"):
        Start.parse(text)


async def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    data = bytes(range(256)) * 1000
    read = b""

    async def read_all() -> None:
        nonlocal read
        while len(read) < len(data):
            read += await trio.to_thread.run_sync(os.read, reader, 10_000)

    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_all)
            await write_out(data, fd=writer)
    assert read == data
    await write_out(b"", fd=writer)
    os.close(reader)
    with trio.fail_after(DEADLINE_S):
        await wait_reader_gone(fd=writer)
    with pytest.raises(BrokenPipeError):
        await write_out(b"x", fd=writer)
    os.close(writer)
    with pytest.raises(OutputError, match="Bad file descriptor"):
        await write_out(b"x", fd=writer)


async def test_a_file_is_never_gone(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    for path in (tmp_path / "file", None):
        fd = -1 if path is None else os.open(path, os.O_CREAT | os.O_WRONLY)
        with trio.move_on_after(60) as scope:
            await wait_reader_gone(fd=fd)
        assert scope.cancelled_caught
        if path is not None:
            os.close(fd)


async def test_a_message_of_ours_has_nothing_to_hide(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        async with open_producer(it.nameserver, "orders") as producer:
            body = b"compressed" * 1000
            await producer.send(Message("Orders", body))
        assert await consumed(it, wanted()) == [body]
