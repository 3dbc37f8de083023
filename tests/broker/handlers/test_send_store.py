"""Sends that the store does not take, and a store that is too slow."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.broker.handlers.send import SendHandlers
from rmq.broker.origin import Origin
from rmq.broker.serving_parts import ServingParts
from rmq.errors import StorageError
from rmq.remoting.bodies import BatchMessage, encode_batch
from rmq.remoting.codes import ResponseCode, Serialization
from rmq.remoting.dispatch import HandlerTable
from rmq.store.append import AppendResult, AppendStatus
from tests.broker.send_kit import (
    STORE_HOST,
    TOPIC,
    SendBroker,
    batch_frame,
    ext,
    send_broker,
    send_frame,
    text,
)
from tests.remoting.server_kit import Frame, serving
from tests.store.running import is_of_log, is_of_queues

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UNAVAILABLE: Final = (
    "service not available now. It may be caused by one of the following reasons: the broker's"
    " disk is full, messages are put to the slave, message store has been shut down, etc. Here: "
)
ILLEGAL: Final = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length"
    " limit 1000B, msg properties length limit 32KB."
)


def batch(*bodies: bytes) -> bytes:
    return encode_batch([BatchMessage(0, body, b"") for body in bodies])


KINDS: Final = [
    pytest.param(send_frame(), id="short way"),
    pytest.param(send_frame(properties=text(DELAY="1")), id="delayed"),
    pytest.param(send_frame(properties=text(TRAN_MSG="true")), id="half"),
    pytest.param(batch_frame(batch(b"a", b"b")), id="batch"),
    pytest.param(send_frame("New"), id="to a new topic"),
]


def check_refused(answer: Frame, code: ResponseCode, remark: str) -> None:
    assert (answer.code, answer.remark) == (code, remark)
    assert ext(answer) == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


# --- a store that takes nothing --------------------------------------------------------------


@pytest.mark.parametrize("sent", KINDS)
async def test_a_full_disk_refuses_sends_until_there_is_room(tmp_path: Path, sent: bytes) -> None:
    async with send_broker(tmp_path) as broker:
        broker.core.set_disk_full(True)
        check_refused(
            await broker.send(sent),
            ResponseCode.SERVICE_NOT_AVAILABLE,
            UNAVAILABLE + "the disk is full",
        )
        assert broker.core.log.written == 0
        assert broker.broker.stats.store.put_failures == 1
        broker.core.set_disk_full(False)
        assert (await broker.send(sent)).code == 0


@pytest.mark.parametrize("sent", KINDS)
async def test_a_failed_store_says_what_failed(tmp_path: Path, sent: bytes) -> None:
    async with send_broker(tmp_path) as broker:
        broker.core.fail(StorageError("sync", "commitlog/0", "Input/output error"))
        check_refused(
            await broker.send(sent),
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"{UNAVAILABLE}the store failed and must be restarted: cannot sync commitlog/0:"
            " Input/output error",
        )


@pytest.mark.parametrize("sent", KINDS)
async def test_a_store_that_is_closed_takes_nothing(tmp_path: Path, sent: bytes) -> None:
    async with send_broker(tmp_path) as broker:
        broker.core.close()
        check_refused(
            await broker.send(sent),
            ResponseCode.SERVICE_NOT_AVAILABLE,
            UNAVAILABLE + "the store is closed",
        )


async def test_queues_that_cannot_be_written_end_sends_until_they_can(tmp_path: Path) -> None:
    one_entry = {"mappedFileSizeConsumeQueue": "20"}
    async with send_broker(tmp_path, one_entry) as broker:
        peer = broker.attach()
        assert (await peer.request(send_frame(body=b"zeroth"))).code == 0
        with broker.storage.faults.failing("create", errno.ENOSPC, on=is_of_queues):
            # What is in the log is kept, though its queue has no entry yet.
            assert (await peer.request(send_frame(body=b"first"))).code == 0
            refused = await peer.request(send_frame(body=b"second"))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert refused.remark is not None
            assert "ConsumeQueue or index cannot be written: cannot create" in refused.remark
        await broker.settle()
        broker.core.dispatcher.catch_up()
        assert (await peer.request(send_frame(body=b"third"))).code == 0
        assert broker.bodies() == [b"zeroth", b"first", b"third"]


async def test_a_segment_that_cannot_be_made_refuses_what_does_not_fit(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": "16384", "maxMessageSize": "10000"}
    async with send_broker(tmp_path, settings) as broker:
        peer = broker.attach()
        assert (await peer.request(send_frame(body=b"x" * 9000))).code == 0
        await broker.settle()
        broker.core.log.discard_spare()
        with broker.storage.faults.failing("create", errno.ENOSPC, on=is_of_log):
            refused = await peer.request(send_frame(body=b"y" * 9000))
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert refused.remark is not None
            assert refused.remark.startswith(
                "create mapped file failed, server is busy or broken. cannot create"
            )
            assert "/commitlog/" in refused.remark
        with trio.fail_after(5):
            while (await peer.request(send_frame(body=b"y" * 9000))).code:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert broker.bodies() == [b"x" * 9000, b"y" * 9000]


@pytest.mark.parametrize(
    ("status", "code", "remark"),
    [
        pytest.param(
            AppendStatus.OS_PAGE_CACHE_BUSY,
            ResponseCode.SYSTEM_ERROR,
            "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
            id="busy",
        ),
        pytest.param(
            AppendStatus.UNKNOWN_ERROR, ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR why", id="unknown"
        ),
    ],
)
async def test_what_else_a_store_may_say_is_passed_on(
    tmp_path: Path, status: AppendStatus, code: ResponseCode, remark: str
) -> None:
    async with send_broker(tmp_path) as broker:
        broker.store.append = lambda messages: [  # type: ignore[method-assign]
            AppendResult(status, reason="why") for _ in messages
        ]
        check_refused(await broker.send(send_frame()), code, remark)
        check_refused(await broker.send(send_frame(properties=text(DELAY="1"))), code, remark)


# --- messages that are too large -------------------------------------------------------------


def limits(body: int, record: int) -> str:
    return f" the body has {body} bytes and the record {record}, the limits are 1000 and 66536"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        pytest.param(send_frame(body=b"x" * 1001), limits(1001, 1120), id="body"),
        pytest.param(
            send_frame(body=b"x" * 1001, properties=text(DELAY="1")),
            limits(1001, 1170),
            id="body of a delayed one",
        ),
        pytest.param(
            send_frame(properties=text(a="x" * 32750)),
            " the properties have 32775 bytes, the limit is 32767",
            id="properties, with what the broker adds",
        ),
        pytest.param(
            send_frame(properties=text(a="x" * 32710, DELAY="1")),
            " the properties have 32772 bytes, the limit is 32767",
            id="properties of a delayed one",
        ),
        pytest.param(batch_frame(b"x" * 1001), "", id="batch"),
    ],
)
async def test_what_is_too_large_is_refused_with_the_limits(
    tmp_path: Path, sent: bytes, reason: str
) -> None:
    async with send_broker(tmp_path, {"maxMessageSize": "1000"}) as broker:
        check_refused(await broker.send(sent), ResponseCode.MESSAGE_ILLEGAL, f"{ILLEGAL}{reason}")
        assert broker.core.log.written == 0


async def test_the_largest_message_that_is_allowed_is_taken(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"maxMessageSize": "1000"}) as broker:
        assert (await broker.send(send_frame(body=b"x" * 1000))).code == 0
        most = 32767 - len("\x02CLUSTER\x01DefaultCluster") - len("a\x01")
        assert (await broker.send(send_frame(properties=text(a="x" * most)))).code == 0
        assert (await broker.send(send_frame(properties=text(a="x" * (most + 1))))).code == 13
        assert [len(record.body) for record in broker.records()] == [1000, 4]


async def test_a_limit_that_is_changed_counts_for_the_next_send(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"maxMessageSize": "1000"}) as broker:
        assert (await broker.send(send_frame(body=b"x" * 2000))).code == 13
        broker.update(maxMessageSize="2000")
        assert (await broker.send(send_frame(body=b"x" * 2000))).code == 0
        assert (await broker.send(batch_frame(batch(b"x" * 1900)))).code == 0
        broker.update(maxMessageSize="1000")
        refused = await broker.send(send_frame(body=b"x" * 2000))
        assert refused.code == 13
        assert refused.remark is not None
        assert refused.remark.startswith(ILLEGAL)


async def test_one_large_message_among_others_is_refused_alone(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"maxMessageSize": "1000"}) as broker:
        peer = broker.attach()
        await peer.send(
            *(send_frame(body=b"x" * size, opaque=size) for size in (10, 2000, 20, 3000, 30))
        )
        codes = {answer.opaque: answer.code for answer in await peer.read_many(5)}
        assert codes == {10: 0, 2000: 13, 20: 0, 3000: 13, 30: 0}
        assert [len(body) for body in broker.bodies()] == [10, 20, 30]
        assert broker.broker.stats.store.put_failures == 2
        assert broker.broker.stats.store.put_count == 3


# --- a store that is too slow ----------------------------------------------------------------


class SlowStore:
    """The sends of a broker with a clock that each append moves by hand."""

    def __init__(self, broker: SendBroker) -> None:
        self.now = 100.0
        self.append_s = 0.0
        parts = broker.broker
        append: Callable[..., object] = broker.store.append

        def slow_append(*args: object) -> object:
            self.now += self.append_s
            return append(*args)

        broker.store.append = slow_append  # type: ignore[assignment, method-assign]
        self.table = HandlerTable()
        sends = SendHandlers(
            ServingParts(
                parts.live,
                parts.store,
                parts.tables,
                parts.stats,
                Origin(STORE_HOST, broker.clock),
            ),
            parts.acknowledger,
            clock=lambda: self.now,
        )
        sends.add_to(self.table)
        broker.nursery.start_soon(sends.new_queues.run)


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_sends_are_refused_for_a_while_after_one_that_took_too_long(
    tmp_path: Path, serialization: Serialization
) -> None:
    async with send_broker(tmp_path, {"osPageCacheBusyTimeOutMills": "1000"}) as broker:
        slow = SlowStore(broker)
        async with serving(slow.table) as served:
            peer = served.attach()
            sent = send_frame(serialization=serialization)
            slow.append_s = 1.0
            assert (await peer.request(sent)).code == 0
            assert (await peer.request(sent)).code == 0
            slow.append_s = 5.0
            assert (await peer.request(sent)).code == 0
            slow.append_s = 0.0
            slow.now += 0.999
            await peer.send(sent, sent)
            for refused in await peer.read_many(2):
                assert refused.code == ResponseCode.SYSTEM_BUSY
                assert refused.remark == (
                    "[REJECTREQUEST]system busy, start flow control for a while"
                )
                # In 4.9.8 it is not the handler who says so, and the server speaks JSON.
                assert refused.serialization == Serialization.JSON
            slow.now += 0.002
            assert (await peer.request(sent)).code == 0
            assert broker.bodies(TOPIC) == [b"body"] * 4
            assert broker.broker.stats.store.put_ms_max == 5000


async def test_nothing_is_answered_to_a_one_way_send_that_is_refused(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        slow = SlowStore(broker)
        slow.append_s = 5.0
        async with serving(slow.table) as served:
            peer = served.attach()
            assert (await peer.request(send_frame())).code == 0
            await peer.send(send_frame(oneway=True), send_frame(opaque=2))
            assert (await peer.read()).opaque == 2
            assert broker.bodies(TOPIC) == [b"body"]
