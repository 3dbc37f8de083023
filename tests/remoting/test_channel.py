"""The life of a connection: its events, how long it may be silent, and how it ends."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from rmq.errors import ConfigError, ConnectionLostError
from rmq.remoting.channel import Channel, ChannelConfig
from rmq.remoting.codes import RequestCode
from rmq.remoting.groups import HandlerGroup
from rmq.remoting.protocol import RequestType
from tests.remoting.server_kit import (
    PULL,
    SEND,
    Ask,
    Events,
    Holder,
    Logs,
    Told,
    ask,
    echo,
    serving,
    table_with_ping,
)

NOTIFY = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

# ---- events and the registry ---------------------------------------------------------------------


async def test_connections_are_known_while_they_are_open() -> None:
    events = Events()
    async with serving(listeners=[events]) as served:
        first, _ = served.attach_recorded("first")
        second, _ = served.attach_recorded("second")
        await first.ping()
        await second.ping()
        assert served.server.channels == {first.channel, second.channel}
        assert served.server.statistics().endpoint.connections == 2
        assert events.seen == [("opened", "first"), ("opened", "second")]

        await first.aclose()
        await wait_all_tasks_blocked()
        assert served.server.channels == {second.channel}
        assert events.seen[2:] == [("closed", "first", "closed by the peer")]
        assert not first.channel.is_open
        assert second.channel.is_open
    assert events.seen[3:] == [("closed", "second", "the endpoint is closing")]


async def test_a_dialled_connection_is_known_by_its_addresses() -> None:
    async with serving() as served:
        peer = await served.dial()
        await peer.ping()
        (channel,) = served.server.channels
        assert isinstance(peer.stream, trio.SocketStream)
        host, port = peer.stream.socket.getsockname()
        assert channel.peer == f"{host}:{port}"
        assert [channel.local] == served.server.addresses
        assert not channel.secure


@pytest.mark.parametrize("over", ["memory", "tcp"])
async def test_an_owner_may_close_a_connection_and_the_first_reason_counts(over: str) -> None:
    events = Events()
    async with serving(listeners=[events]) as served:
        peer = served.attach("peer") if over == "memory" else await served.dial()
        await peer.ping()
        (channel,) = served.server.channels
        channel.close("superseded")
        channel.close("something else")
        assert await peer.read_to_end() == []
        assert channel.close_reason == "superseded"
        assert repr(channel).endswith("closed: superseded>")
        assert events.reasons == ["superseded"]
        with pytest.raises(ConnectionLostError, match="superseded"):
            channel.oneway(NOTIFY)
        # Nobody is there to get it, and nothing is kept for nobody.
        channel.send(b"frame", b"body")
        assert channel.outbox_bytes == 0


@pytest.mark.parametrize("over", ["memory", "socket"])
async def test_a_listener_may_close_a_connection_as_it_opens(over: str) -> None:
    class Bouncer(Events):
        def connection_opened(self, channel: Channel) -> None:
            super().connection_opened(channel)
            if channel.peer == "stranger":
                channel.close("not invited")

    events = Bouncer()
    async with serving(listeners=[events]) as served:
        if over == "memory":
            stranger = served.attach("stranger")
        else:
            stranger, _ = served.attach_recorded("stranger")
        friend = served.attach("friend")
        assert await stranger.read_to_end() == []
        assert await friend.ping() == []
        assert events.reasons == ["not invited"]
        assert served.server.channels == {friend.channel}


async def test_a_listener_that_raises_hurts_nobody(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def connection_opened(self, channel: Channel) -> None:
            raise ValueError("opened")

        def connection_closed(self, channel: Channel, reason: str) -> None:
            raise ValueError("closed")

        def connection_idle(self, channel: Channel) -> None:
            raise ValueError("idle")

    events = Events()
    async with serving(listeners=[Broken(), events]) as served:
        peer = served.attach()
        assert await peer.ping() == []
        assert await peer.read_to_end() == []
        assert events.seen == [
            ("opened", "peer"),
            ("idle", "peer"),
            ("closed", "peer", "idle for 120 s"),
        ]
        assert await served.attach("next").ping() == []
    lines = Logs(caplog).lines
    assert [line.rpartition(" ")[2] for line in lines[:3]] == [
        "connection_opened",
        "connection_idle",
        "connection_closed",
    ]


async def test_what_an_owner_remembers_about_a_connection_stays_with_it() -> None:
    async with serving() as served:
        first, second = served.attach("first"), served.attach("second")
        first.channel.state["clientId"] = "c1"
        assert first.channel.state == {"clientId": "c1"}
        assert second.channel.state == {}


@pytest.mark.parametrize("over", ["memory", "tcp"])
async def test_everything_sent_before_the_peer_hung_up_is_handled(over: str) -> None:
    seen: list[int] = []
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), lambda request: seen.append(request.header.number))
    events = Events()
    async with serving(table, listeners=[events]) as served:
        peer = served.attach() if over == "memory" else await served.dial()
        await peer.send(*(ask(SEND, n, oneway=True) for n in range(2_000)))
        await peer.aclose()
        while not events.reasons:
            await wait_all_tasks_blocked()
        assert seen == list(range(2_000))
    assert events.reasons == ["closed by the peer"]


# ---- silence -------------------------------------------------------------------------------------


async def test_a_connection_without_a_byte_for_120_s_is_idle_and_closed(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    async with serving(listeners=[events]) as served:
        start = trio.current_time()
        peer = served.attach()
        assert await peer.read_to_end() == []
        assert 120 <= trio.current_time() - start <= 121
        assert events.seen == [
            ("opened", "peer"),
            ("idle", "peer"),
            ("closed", "peer", "idle for 120 s"),
        ]
    assert Logs(caplog).lines == []


@pytest.mark.parametrize("active", ["peer", "server"])
async def test_a_byte_either_way_starts_the_idle_time_anew(
    active: str, autojump_clock: MockClock
) -> None:
    events = Events()
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), lambda request: None)
    async with serving(table, listeners=[events]) as served:
        peer, silent = served.attach("active"), served.attach("silent")
        start = trio.current_time()
        for number in range(3):
            await trio.sleep(100)
            if active == "peer":
                # One-way, so that nothing goes the other way.
                await peer.send(ask(SEND, number, oneway=True))
            else:
                peer.channel.oneway(NOTIFY)
                await peer.read()
        assert not silent.channel.is_open
        assert peer.channel.is_open
        assert await peer.read_to_end() == []
        assert 420 <= trio.current_time() - start <= 421


async def test_idle_time_is_configured(autojump_clock: MockClock) -> None:
    async with serving(channel=ChannelConfig(idle_timeout_s=7)) as served:
        start = trio.current_time()
        assert await served.attach().read_to_end() == []
        assert 7 <= trio.current_time() - start <= 8


async def test_a_connection_with_a_request_under_way_is_idle_all_the_same(
    autojump_clock: MockClock,
) -> None:
    holder = Holder()
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(PULL, 1))
        assert await peer.read_to_end() == []
        assert trio.current_time() <= 122
        holder.requests[0].reply(Told(number=1))


async def test_a_connection_that_we_do_not_read_on_purpose_is_not_idle(
    autojump_clock: MockClock,
) -> None:
    holder = Holder()
    table = table_with_ping()
    once = HandlerGroup(name="once", concurrency=1, capacity=10, per_connection=1)
    table.add(RequestType(Ask, code=PULL), holder, group=once)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(PULL, 1))
        await trio.sleep(1_000)
        assert peer.channel.is_open
        holder.requests[0].reply(Told(number=1))
        assert (await peer.read()).opaque == 1
        assert await peer.ping() == []


# ---- half a frame --------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [1, 4, 7, 8, 9, 100])
async def test_half_a_frame_then_silence_is_closed_with_one_log_line(
    sent: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    config = ChannelConfig(frame_timeout_s=30)
    async with serving(channel=config, listeners=[events]) as served:
        peer, other = served.attach(), served.attach("other")
        await peer.send(ask(SEND, 1, body=b"x" * 200)[:sent])
        start = trio.current_time()
        assert await peer.read_to_end() == []
        assert 30 <= trio.current_time() - start <= 31
        assert events.reasons == ["a frame was unfinished after 30 s"]
        assert await other.ping() == []
    assert Logs(caplog).lines == ["closing connection of peer: a frame is unfinished after 30 s"]


async def test_a_frame_that_trickles_in_has_its_time_and_no_more(
    autojump_clock: MockClock,
) -> None:
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    async with serving(table) as served:
        peer = served.attach()
        frame = ask(SEND, 1, body=b"x" * 100)
        # A frame of its own each time: the clock starts with each.
        for _ in range(3):
            for position in range(0, len(frame), 40):
                await peer.send(frame[position : position + 40])
                await trio.sleep(10)
            assert (await peer.read()).opaque == 1
        start = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def trickle() -> None:
                with suppress(trio.BrokenResourceError):
                    for byte in frame:
                        await peer.send(bytes([byte]))
                        await trio.sleep(10)

            nursery.start_soon(trickle)
            assert await peer.read_to_end() == []
        assert 120 <= trio.current_time() - start <= 131


@pytest.mark.parametrize("over", ["memory", "socket"])
async def test_what_we_write_gives_an_unfinished_frame_no_more_time(
    over: str, autojump_clock: MockClock
) -> None:
    async with serving(channel=ChannelConfig(frame_timeout_s=30)) as served:
        peer = served.attach() if over == "memory" else served.attach_recorded()[0]
        await peer.send(ask(SEND, 1)[:50])
        start = trio.current_time()
        while peer.channel.is_open:
            assert trio.current_time() - start < 100
            peer.channel.oneway(NOTIFY)
            await trio.sleep(10)
        assert trio.current_time() - start <= 40


async def test_frames_that_never_end_at_a_read_are_not_taken_for_an_unfinished_one(
    autojump_clock: MockClock,
) -> None:
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    async with serving(table) as served:
        peer = served.attach()
        frame = ask(SEND, 1)
        await peer.send(frame[:10])
        for _ in range(10):
            await trio.sleep(50)
            await peer.send(frame[10:] + frame[:10])
            assert (await peer.read()).opaque == 1


async def test_time_in_which_we_do_not_read_is_not_held_against_the_frame(
    autojump_clock: MockClock,
) -> None:
    holder = Holder()
    table = table_with_ping()
    once = HandlerGroup(name="once", concurrency=1, capacity=10, per_connection=1)
    table.add(RequestType(Ask, code=PULL), holder, group=once)
    async with serving(table) as served:
        peer = served.attach()
        frame = ask(PULL, 2, body=b"x" * 1_000)
        await peer.send(ask(PULL, 1), frame[:500])
        await trio.sleep(150)
        holder.requests[0].reply(Told(number=1))
        assert (await peer.read()).opaque == 1
        # The peer could not have known that nobody was reading.
        await trio.sleep(5)
        await peer.send(frame[500:])
        await wait_all_tasks_blocked()
        assert holder.numbers == [1, 2]


async def test_time_in_which_we_wait_for_the_peer_to_read_is_not_held_against_its_frame(
    autojump_clock: MockClock,
) -> None:
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), lambda request: request.reply(body=bytes(640 * 1024)))
    async with serving(table) as served:
        peer = served.attach(lockstep=True)
        frame = ask(PULL, 2, body=b"x" * 1_000)
        await peer.send(ask(PULL, 1), frame[:500])
        while peer.channel.outbox_bytes:
            # 64 KiB every 20 s: slow, but it makes progress.
            await trio.sleep(20)
            assert await peer.stream.receive_some(64 * 1024)
            await wait_all_tasks_blocked()
        await trio.sleep(5)
        await peer.send(frame[500:])
        await wait_all_tasks_blocked()
        assert peer.channel.close_reason is None
        assert peer.channel.outbox_bytes > 640 * 1024


# ---- pauses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", ["memory", "socket"])
async def test_a_paused_connection_is_read_no_further_until_every_pause_is_over(over: str) -> None:
    async with serving() as served:
        peer = served.attach() if over == "memory" else served.attach_recorded()[0]
        await peer.ping()
        channel = peer.channel
        channel.pause()
        channel.pause()
        await peer.send(ask(9_999, 1))
        await wait_all_tasks_blocked()
        channel.resume()
        await wait_all_tasks_blocked()
        assert channel.outbox_bytes == 0
        channel.resume()
        assert (await peer.read()).opaque == 1
        assert await peer.ping() == []


@pytest.mark.parametrize("over", ["memory", "socket"])
async def test_a_connection_paused_anew_before_it_was_read_again_lives_on(over: str) -> None:
    async with serving() as served:
        peer = served.attach() if over == "memory" else served.attach_recorded()[0]
        await peer.ping()
        channel = peer.channel
        channel.pause()
        channel.resume()
        channel.pause()
        await wait_all_tasks_blocked()
        await peer.send(ask(9_999, 1))
        await wait_all_tasks_blocked()
        assert channel.close_reason is None
        channel.resume()
        assert (await peer.read()).opaque == 1
        assert await peer.ping() == []


@pytest.mark.parametrize("over", ["memory", "socket"])
async def test_a_paused_connection_with_frames_to_handle_can_be_closed(over: str) -> None:
    seen: list[int] = []
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), lambda request: seen.append(request.header.number))
    async with serving(table) as served:
        peer = served.attach() if over == "memory" else served.attach_recorded()[0]
        other = served.attach("other")
        await peer.ping()
        peer.channel.pause()
        await peer.send(ask(SEND, 1))
        await wait_all_tasks_blocked()
        peer.channel.close("enough")
        assert await peer.read_to_end() == []
        assert await other.ping() == []
        assert seen == []


# ---- closing in the middle of something ----------------------------------------------------------


async def test_closing_while_a_write_completes_hurts_nobody() -> None:
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    written = trio.Event()
    near, far = memory_stream_pair()
    near.send_stream.send_all_hook = written.wait
    async with serving(table) as served:
        peer, other = served.attach_streams(near, far), served.attach("other")
        await peer.send(ask(SEND, 1))
        await wait_all_tasks_blocked()
        assert peer.channel.outbox_bytes > 0
        written.set()
        peer.channel.close("kicked out")
        await wait_all_tasks_blocked()
        assert await other.ping() == []
        assert served.server.channels == {other.channel}


async def test_a_handler_may_close_the_connection_of_its_request() -> None:
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), lambda request: request.channel.close("enough"))
    table.add(RequestType(Ask, code=PULL), echo)
    async with serving(table) as served:
        peer, other = served.attach(), served.attach("other")
        await peer.send(ask(PULL, 1), ask(SEND, 2), ask(PULL, 3))
        await peer.read_to_end()
        assert peer.channel.close_reason == "enough"
        assert await other.ping() == []


# ---- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ChannelConfig)])
@pytest.mark.parametrize("value", [0, -1])
def test_a_bound_of_nothing_is_refused(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=field):
        ChannelConfig(**{field: value})
