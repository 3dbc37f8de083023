"""`rmq produce`: lines become messages, and what does not is told."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import trio
import trustme
from hypothesis import given
from hypothesis import strategies as st

from rmq.cli import produce as command
from rmq.cli.common.client_options import client_config
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.line_input import LineSplitter, read_lines
from rmq.cli.common.message_lines import decode_line
from rmq.cli.produce import FAILURES_MAX, PATIENCE_S, Sending, produce
from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message, SendResult, SendStatus
from rmq.client.trio.opening import open_admin
from rmq.errors import (
    ConfigError,
    IllegalMessageError,
    ResponseError,
    RmqError,
    SendFailedError,
)
from rmq.nameserver.config import load_nameserver_config
from rmq.nameserver.server import serve_nameserver
from rmq.remoting.codes import ResponseCode
from tests.cli.client_kit import DEADLINE_S, environment, running
from tests.cli.parsing import args_of
from tests.client.admin_kit import queue
from tests.client.cluster_kit import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
    from pathlib import Path

    from trio.testing import MockClock

    from tests.cli.client_kit import Processes
    from tests.cli.conftest import RunHere


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with running(tmp_path_factory.mktemp("produce")) as it:
        yield it


# --- as users meet it -------------------------------------------------------------------------


def test_lines_become_messages_whatever_is_in_them(processes: Processes) -> None:
    lines = [b"one", b"\xff\xfe\x00 binary", b" blanks ", "zwölf".encode(), b"carriage\r", b"last"]
    done = processes.rmq("produce", "Lines", lines=b"\n".join(lines))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert sorted(message.body for message in processes.stored("Lines")) == sorted(lines)


def test_options_go_with_every_message(processes: Processes) -> None:
    done = processes.rmq(
        "produce", "Tagged", "--tag", "new", "--key", "k1", "--key", "k2", lines=b"x\n"
    )
    assert done.returncode == 0, done.stderr
    (message,) = processes.stored("Tagged")
    assert (message.body, message.tag, message.keys) == (b"x", "new", ("k1", "k2"))


def test_what_was_consumed_as_json_can_be_produced_again(processes: Processes) -> None:
    first = (
        b'{"body":"good morning","tag":"t","keys":["k"],"properties":{"region":"north"},"flag":7}\n'
        b'{"body_base64":"//4A"}\n'
    )
    assert processes.rmq("produce", "First", "--json", lines=first).returncode == 0
    copied = processes.rmq("consume", "First", "--json")
    done = processes.rmq("produce", "Second", "--json", lines=copied.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    second = processes.rmq("consume", "Second", "--json")
    for line in second.stdout.splitlines():
        message = decode_line(line, "T", tag=None, keys=(), delay_level=0)
        if message.tag is None:
            assert message.body == b"\xff\xfe\0"
        else:
            assert message == Message(
                "T",
                b"good morning",
                tag="t",
                keys=("k",),
                properties={"region": "north"},
                flag=7,
            )
    assert len(second.stdout.splitlines()) == 2


def test_lines_that_are_no_messages_are_named_and_the_rest_is_stored(processes: Processes) -> None:
    lines = b'{"body":"x"}\nnonsense\n{"bdy":"x"}\n{"body":"x","body_base64":"eA=="}\n{"body":"y"}'
    done = processes.rmq("produce", "Some", "--json", lines=lines)
    assert done.returncode == ExitCode.FAILURE
    told = done.stderr.decode().splitlines()
    assert [line.partition(": it ")[0] for line in told[:3]] == [
        f"rmq: error: line {number}" for number in (2, 3, 4)
    ]
    assert "unknown field `bdy`" in told[1]
    assert told[-1] == "rmq: 2 of 5 messages stored"
    assert sorted(message.body for message in processes.stored("Some")) == [b"x", b"y"]


def test_empty_lines_are_no_messages(processes: Processes) -> None:
    done = processes.rmq("produce", "Empty", lines=b"a\n\nb\n")
    assert done.returncode == ExitCode.FAILURE
    assert b"line 2: the body is empty" in done.stderr
    assert b"rmq: 2 of 3 messages stored" in done.stderr


def test_nothing_at_all_is_fine(processes: Processes) -> None:
    done = processes.rmq("produce", "Lines")
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_stores_what_was_read_and_says_how_much(processes: Processes) -> None:
    process = processes.start("produce", "Stopped")
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nhalf a li")
    process.stdin.flush()
    # Both lines are stored before the signal comes.
    give_up_at = time.monotonic() + DEADLINE_S
    while len(processes.stored("Stopped")) < 2:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    # Its standard input stays open: it must not wait for more.
    assert process.wait(timeout=DEADLINE_S) == ExitCode.INTERRUPTED
    _, errors = process.communicate()
    assert b"Traceback" not in errors
    assert sorted(message.body for message in processes.stored("Stopped")) == [b"one", b"two"]


def test_a_terminal_is_told_how_fast(processes: Processes) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "rmq", "produce", "-n", processes.nameserver, "Shown"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment(),
    ) as process:
        os.close(theirs)
        output, _ = process.communicate(b"x\n" * 100, timeout=DEADLINE_S)
        shown = b""
        while chunk := _read_terminal(ours):
            shown += chunk
    os.close(ours)
    assert (process.returncode, output) == (0, b"")
    assert b"100 of 100 messages stored in" in shown
    assert b"per second" in shown


def _read_terminal(fd: int) -> bytes:
    try:
        return os.read(fd, 65_536)
    except OSError:
        # What Linux says when the other end is closed.
        return b""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["T"], ExitCode.USAGE, "give -n HOST:PORT", id="no-nameserver"),
        pytest.param(["T", "-n", "x"], ExitCode.CONFIG, "is not host:port", id="address"),
        pytest.param(["no blanks", "-n", "h:1"], ExitCode.USAGE, "characters", id="topic"),
        pytest.param(["T", "-n", "h:1", "--key", ""], ExitCode.USAGE, "key ''", id="key"),
        pytest.param(["T", "-n", "h:1", "--delay-level", "19"], ExitCode.USAGE, "19", id="delay"),
        pytest.param(["T", "-n", "127.0.0.1:1"], ExitCode.UNAVAILABLE, "127.0.0.1:1", id="nobody"),
        pytest.param(
            ["T", "-n", "h:1", "--access-key", "me"], ExitCode.CONFIG, "secret key", id="half-a-key"
        ),
        pytest.param(
            ["T", "-n", "h:1", "--tls-trust", "/nowhere.pem"],
            ExitCode.CONFIG,
            "trustCertPath",
            id="trust",
        ),
        pytest.param(["T", "-n", "h:1", "--tls-key", "x"], ExitCode.CONFIG, "both", id="cert"),
    ],
)
def test_bad_arguments_are_explained(
    run_here: RunHere, arguments: list[str], code: ExitCode, message: str
) -> None:
    ended_with, _, errors = run_here("produce", *arguments)
    assert ended_with == code, errors
    assert message in errors
    assert "Traceback" not in errors


def test_standard_input_that_is_closed_is_told(processes: Processes) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec '{sys.executable}' -m rmq produce -n {processes.nameserver} T <&-"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment(),
        check=False,
    )
    assert done.returncode == ExitCode.FAILURE
    assert "standard input is closed" in done.stderr


# --- inside -----------------------------------------------------------------------------------


async def given_lines(lines: Sequence[bytes | None]) -> AsyncGenerator[list[bytes | None], None]:
    for line in lines:
        await trio.lowlevel.checkpoint()
        yield [line]


def text(line: bytes) -> Message:
    return Message("Orders", line)


async def test_brokers_that_die_end_it_with_a_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "FAILURES_MAX", 5)
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders")

        async def lines() -> AsyncGenerator[list[bytes | None], None]:
            yield [b"stored"]
            async with open_admin(it.nameserver) as admin:
                while not (await admin.topic_stats("Orders")).count:
                    await trio.lowlevel.checkpoint()
            await it.kill()
            for number in range(1000):
                yield [b"%d" % number]
                await trio.sleep(0.001)

        code = await produce(ClientConfig(nameservers=it.nameserver), "Orders", text, lines())
    assert code == ExitCode.FAILURE
    errors = capsys.readouterr().err
    assert "rmq: error: line 2: " in errors
    assert "gave up after 5 in a row" in errors
    assert errors.count("rmq: error: line") <= 10


async def test_a_line_that_is_too_long_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        huge = b"x" * (5 * 1024**2)
        code = await produce(
            ClientConfig(nameservers=it.nameserver),
            "Orders",
            text,
            given_lines([b"a", None, huge, b"b"]),
        )
        async with open_admin(it.nameserver) as admin:
            assert await admin.max_offset(queue("Orders")) == 2
    assert code == ExitCode.FAILURE
    errors = capsys.readouterr().err
    assert "line 2: it has more than 16777216 bytes" in errors
    assert "line 3: " in errors
    assert "rmq: 2 of 4 messages stored" in errors


async def test_more_lines_than_may_be_under_way_all_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PENDING_MAX", 10)
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        lines = [b"%d" % number for number in range(500)]

        async def all_at_once() -> AsyncGenerator[list[bytes | None], None]:
            yield [*lines]

        config = ClientConfig(nameservers=it.nameserver)
        assert await produce(config, "Orders", text, all_at_once()) == ExitCode.OK
        async with open_admin(it.nameserver) as admin:
            assert (await admin.topic_stats("Orders")).count == 500


async def test_connections_can_be_encrypted(tmp_path: Path) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    files = {name: tmp_path / f"{name}.pem" for name in ("cert", "key", "trust")}
    files["cert"].write_bytes(leaf.cert_chain_pems[0].bytes())
    files["key"].write_bytes(leaf.private_key_pem.bytes())
    files["trust"].write_bytes(authority.cert_pem.bytes())
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(files["cert"]),
        "tls.server.keyPath": str(files["key"]),
        "useTLS": "true",
    }
    conf = {
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "kvConfigPath": str(tmp_path / "kv"),
        **{key: value for key, value in settings.items() if key.startswith("tls.server.")},
    }
    config = load_nameserver_config(None, conf, environ={}).config
    async with trio.open_nursery() as nursery:
        nameserver = await nursery.start(serve_nameserver, config)
        it = Cluster(tmp_path, nursery, f"127.0.0.1:{nameserver.server.port}")
        await it.start(**settings)
        for options in (["--tls"], ["--tls-trust", str(files["trust"])]):
            client = config_of("-n", it.nameserver, *options)
            assert await produce(client, "Orders", text, given_lines([b"hidden"])) == ExitCode.OK
        with pytest.raises(BaseExceptionGroup):
            await produce(config_of("-n", it.nameserver), "Orders", text, given_lines([b"plain"]))
        async with open_admin(client) as admin:
            assert (await admin.topic_stats("Orders")).count == 2
        nursery.cancel_scope.cancel()


async def test_lines_are_read_in_a_thread() -> None:
    chunks = iter([b"a\nb", b"c\n", b"d", b""])
    lines = [line async for some in read_lines(lambda: next(chunks)) for line in some]
    assert lines == [b"a", b"bc", b"d"]


@given(st.lists(st.binary(max_size=20), max_size=10), st.lists(st.integers(1, 7)))
def test_lines_are_cut_the_same_wherever_a_read_ends(parts: list[bytes], sizes: list[int]) -> None:
    data = b"\n".join(parts)
    splitter = LineSplitter(bytes_max=100)
    found: list[bytes | None] = []
    rest = data
    for size in sizes:
        found += splitter.feed(rest[:size])
        rest = rest[size:]
    found += splitter.feed(rest)
    found += splitter.end()
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert found == expected


def test_a_line_that_is_too_long_is_not_kept() -> None:
    splitter = LineSplitter(bytes_max=3)
    assert splitter.feed(b"ab") == []
    assert splitter.feed(b"cd") == []
    assert splitter.feed(b"ef\nabc\nabcd") == [None, b"abc"]
    assert splitter.end() == [None]
    assert splitter.end() == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "no message in JSON"),
        (b"[]", "no message in JSON"),
        (b'{"body":"\xff"}', "no message in JSON"),
        (b"{}", "one of body and body_base64"),
        (b'{"body_base64":"!"}', "not Base64"),
        (b'{"body":""}', "empty"),
        (b'{"body":"x","keys":["a b"]}', "blank"),
        (b'{"body":"x","properties":{"KEYS":"x"}}', "belongs to the system"),
        (b'{"body":"x","delay_level":"3"}', "delay_level"),
        (b"[" * 100_000, "no message in JSON"),
    ],
)
def test_json_that_is_no_message_says_why(line: bytes, reason: str) -> None:
    with pytest.raises(IllegalMessageError, match=reason):
        decode_line(line, "T", tag=None, keys=(), delay_level=0)


def test_what_a_line_does_not_say_the_options_do() -> None:
    line = b'{"body":"x","keys":"a b"}'
    message = decode_line(line, "T", tag="t", keys=("k",), delay_level=3)
    assert message == Message("T", b"x", tag="t", keys=("a", "b"), delay_level=3)
    line = b'{"body":"x","tag":"own","delay_level":0,"topic":"Other"}'
    message = decode_line(line, "T", tag="t", keys=("k",), delay_level=3)
    assert message == Message("T", b"x", tag="own", keys=("k",), delay_level=0)


# --- busy brokers -----------------------------------------------------------------------------


class BusyBroker:
    """Stores `room` messages in each tenth of a second, and is too busy for more."""

    def __init__(self, nursery: trio.Nursery, room: int) -> None:
        self._nursery = nursery
        self._room = room
        self._taken: dict[int, int] = {}
        self.stored: list[bytes] = []
        self.requests = 0

    def submit(
        self, message: Message, on_outcome: Callable[[SendResult | RmqError], None], /
    ) -> None:
        self.requests += 1
        self._nursery.start_soon(self._answer, message, on_outcome)

    async def _answer(
        self, message: Message, on_outcome: Callable[[SendResult | RmqError], None]
    ) -> None:
        await trio.sleep(0.01)
        tenth = int(trio.current_time() * 10)
        taken = self._taken[tenth] = self._taken.get(tenth, 0) + 1
        if taken > self._room:
            busy = ResponseError("b:1", "SEND_MESSAGE_V2", ResponseCode.SYSTEM_BUSY, "[OVERLOAD]")
            on_outcome(SendFailedError(message.topic, [("b", busy)], may_be_stored=False))
        else:
            self.stored.append(message.body)
            on_outcome(SendResult(SendStatus.OK, "id", "place", queue("T"), len(self.stored)))


async def send_to_busy(room: int, count: int) -> tuple[Sending, BusyBroker, list[str]]:
    said: list[str] = []
    async with trio.open_nursery() as nursery:
        broker = BusyBroker(nursery, room)
        sending = Sending(broker, lambda line: Message("T", line), said.append)

        async def lines() -> AsyncGenerator[list[bytes | None], None]:
            yield [b"%d" % number for number in range(count)]

        await sending.send_all(lines())
        await sending.wait_idle()
    return sending, broker, said


async def test_busy_brokers_get_every_message_later_and_fewer_at_a_time(
    autojump_clock: MockClock,
) -> None:
    sending, broker, said = await send_to_busy(room=50, count=6_000)
    assert sorted(map(int, broker.stored)) == list(range(6_000))
    assert (sending.stored, sending.failed, said) == (6_000, 0, [])
    assert sending.refused == broker.requests - 6_000
    # 12 s are the least; most of the requests are of use all the same.
    assert trio.current_time() < 30
    assert broker.requests < 3 * 6_000


async def test_brokers_that_stay_busy_are_given_up(autojump_clock: MockClock) -> None:
    sending, _, said = await send_to_busy(room=0, count=150)
    assert sending.is_hopeless
    assert sending.failed >= FAILURES_MAX
    assert "[OVERLOAD]" in said[0]
    assert PATIENCE_S < trio.current_time() < 2 * PATIENCE_S


def config_of(*arguments: str, **environ: str) -> ClientConfig:
    return client_config(args_of("produce", "Topic", *arguments), environ)


def test_where_the_cluster_is_and_who_we_are() -> None:
    config = config_of(
        NAMESRV_ADDR="a:1;b:2", RMQ_ACCESS_KEY="me-myself", RMQ_SECRET_KEY="secret-key"
    )
    assert config.addresses == ("a:1", "b:2")
    assert config.credentials is not None
    assert config.credentials.access_key == "me-myself"
    assert config.tls is None
    config = config_of(
        "-n", "c:3", "--access-key", "k", "--secret-key", "s", "--tls", NAMESRV_ADDR="a:1"
    )
    assert config.addresses == ("c:3",)
    assert config.credentials is not None
    assert config.credentials.secret_key == "s"
    assert config.tls is not None
    assert not config.tls.auth_server
    with pytest.raises(ConfigError, match="needs the account"):
        config_of("-n", "c:3", RMQ_SECRET_KEY="s")
    with pytest.raises(ConfigError):
        config_of("-n", "c:3", "--tls-cert", "x.pem")
