"""Traces on their way: buffered, put together, sent, and never in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message, SendResult, SendStatus, TransactionState
from rmq.client.core.producing.unique_keys import UniqueKeys
from rmq.client.core.received import received
from rmq.client.core.trace import (
    BODY_BYTES_MAX,
    KEYS_BYTES_MAX,
    ConsumeCode,
    ConsumeEndTrace,
    ConsumeStartTrace,
    MessageKind,
    SendTrace,
    Sent,
    Trace,
    Tracer,
    TransactionEnded,
    TransactionTrace,
    decode_traces,
    trace_batches,
)
from rmq.client.tasks.tracing import NOTES_MAX, MessageTracer, TraceRole, trace_group, traced
from rmq.client.trio.loop import TRIO
from rmq.client.trio.opening import open_admin, open_producer, open_tracing
from rmq.errors import RequestTimeoutError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import encode_properties
from rmq.model.queues import MessageQueue
from rmq.model.record import StoredRecord, pack_host
from tests.client.admin_kit import WAIT_S
from tests.client.cluster_kit import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.client.core.received import ReceivedMessage
    from rmq.client.tasks.admin import AdminClient

QUEUE = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=0)
OK = SendResult(
    status=SendStatus.OK,
    message_id="M",
    offset_message_id="PLACE",
    queue=QUEUE,
    queue_offset=0,
)


def tracer(notes_max: int = NOTES_MAX) -> MessageTracer:
    return MessageTracer(unique_keys=UniqueKeys(bytes(4), 1, 2), notes_max=notes_max)


def sent(message_id: str = "M", topic: str = "Orders", **changes: object) -> Sent:
    values: dict[str, object] = {
        "group": "orders",
        "topic": topic,
        "message_id": message_id,
        "tag": "new",
        "keys": ("k",),
        "address": "127.0.0.1:10911",
        "body_bytes": 3,
        "kind": MessageKind.NORMAL,
        "started_at_ms": 1000,
        "took_ms": 4,
        "outcome": OK,
        **changes,
    }
    return Sent(**values)  # type: ignore[arg-type]


def message(message_id: str, **properties: str) -> ReceivedMessage:
    host = pack_host("127.0.0.1", 10911)
    record = StoredRecord(
        physical_offset=PhysicalOffset(0),
        size=100,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=QueueOffset(0),
        sys_flag=0,
        born_ms=0,
        born_host=host,
        store_ms=0,
        store_host=host,
        reconsume_times=2,
        prepared_offset=0,
        body=b"",
        topic="Orders",
        properties_bytes=encode_properties({"UNIQ_KEY": message_id, **properties}),
    )
    return received(record, "broker-a")


class KeptProducer:
    """Takes trace messages instead of a broker."""

    def __init__(self, *, fails: bool = False) -> None:
        self.messages: list[Message] = []
        self._fails = fails

    async def send(self, message: Message) -> SendResult:
        await trio.lowlevel.checkpoint()
        if self._fails:
            raise RequestTimeoutError("broker", "SEND_MESSAGE_V2", 3.0)
        self.messages.append(message)
        return OK

    @property
    def traces(self) -> list[Trace]:
        return [trace for each in self.messages for trace in decode_traces(each.body)]


async def written(it: MessageTracer, *, fails: bool = False) -> KeptProducer:
    """Send what was noted."""
    producer = KeptProducer(fails=fails)
    it.close()
    await it.run(producer)
    return producer


# --- notes ------------------------------------------------------------------------------------


async def test_what_is_noted_is_written() -> None:
    it = tracer()
    it.sent(sent())
    it.transaction_ended(
        TransactionEnded(
            group="orders",
            topic="Orders",
            message_id="T",
            tag=None,
            keys=(),
            address="127.0.0.1:10911",
            transaction_id="T",
            state=TransactionState.COMMIT,
            is_from_check=False,
            ended_at_ms=2000,
        )
    )
    messages = [message("A", KEYS="k1 k2", MSG_REGION="R"), message("B", TRACE_ON="false")]
    request_id = it.consuming("billing", messages, started_at_ms=3000)
    it.consumed(
        "billing",
        messages,
        request_id=request_id,
        ended_at_ms=3010,
        took_ms=10,
        code=ConsumeCode.LATER,
    )
    producer = await written(it)
    assert producer.traces == [
        SendTrace(
            time_ms=1000,
            group="orders",
            topic="Orders",
            message_id="M",
            tag="new",
            keys=("k",),
            store_host="127.0.0.1:10911",
            body_bytes=3,
            took_ms=4,
            offset_message_id="PLACE",
        ),
        TransactionTrace(
            time_ms=2000,
            group="orders",
            topic="Orders",
            message_id="T",
            store_host="127.0.0.1:10911",
            transaction_id="T",
            state=TransactionState.COMMIT,
        ),
        ConsumeStartTrace(
            time_ms=3000,
            region="R",
            group="billing",
            request_id=request_id,
            message_id="A",
            retries=2,
            keys=("k1", "k2"),
        ),
        ConsumeEndTrace(
            request_id=request_id,
            message_id="A",
            took_ms=5,
            is_ok=False,
            keys=("k1", "k2"),
            code=ConsumeCode.LATER,
            time_ms=3010,
            group="billing",
        ),
    ]
    (only,) = producer.messages
    assert only.topic == "RMQ_SYS_TRACE_TOPIC"
    assert only.keys == ("M", "k", "T", "A", "k1", "k2")


async def test_what_stock_clients_do_not_trace_is_not() -> None:
    it = tracer()
    it.sent(sent(outcome=RequestTimeoutError("b", "SEND", 3.0)))
    off = SendResult(
        status=SendStatus.OK,
        message_id="M",
        offset_message_id="P",
        queue=QUEUE,
        queue_offset=0,
        is_trace_on=False,
    )
    it.sent(sent(outcome=off))
    it.sent(sent(topic="RMQ_SYS_TRACE_TOPIC"))
    it.consuming("billing", [message("B", TRACE_ON="false")], started_at_ms=1)
    assert (await written(it)).messages == []
    assert it.dropped == 0


async def test_a_full_buffer_drops_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    it = tracer(notes_max=3)
    for number in range(5):
        it.sent(sent(f"M{number}"))
    producer = await written(it)
    assert [trace.message_id for trace in producer.traces] == ["M0", "M1", "M2"]
    assert it.dropped == 2
    assert "2 traces to RMQ_SYS_TRACE_TOPIC were dropped" in caplog.text
    it.sent(sent())
    assert it.dropped == 3


async def test_what_cannot_be_sent_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    it = tracer()
    it.sent(sent())
    await written(it, fails=True)
    assert it.dropped == 1
    assert "1 traces were not stored" in caplog.text


# --- when they are sent -----------------------------------------------------------------------


async def test_notes_wait_half_a_second_for_others(autojump_clock: trio.testing.MockClock) -> None:
    it = tracer()
    producer = KeptProducer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(it.run, producer)
        await trio.sleep(10)
        it.sent(sent("A"))
        await trio.sleep(0.4)
        it.sent(sent("B"))
        assert producer.messages == []
        await trio.sleep(0.2)
        assert [trace.message_id for trace in producer.traces] == ["A", "B"]
        nursery.cancel_scope.cancel()


async def test_many_notes_do_not_wait(autojump_clock: trio.testing.MockClock) -> None:
    it = tracer(notes_max=10)
    producer = KeptProducer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(it.run, producer)
        for number in range(6):
            it.sent(sent(f"M{number}"))
        await trio.sleep(0.1)
        assert len(producer.traces) == 6
        nursery.cancel_scope.cancel()


def test_batches_are_as_large_as_they_may_be() -> None:
    traces = [
        SendTrace(
            time_ms=1,
            group="g",
            topic="T" * 100,
            message_id=f"{number:032}",
            store_host="h:1",
            body_bytes=1,
            took_ms=1,
        )
        for number in range(2000)
    ]
    batches = list(trace_batches(traces))
    assert sum(batch.records for batch in batches) == 2000
    assert [trace for batch in batches for trace in decode_traces(batch.body)] == traces
    assert all(len(batch.body) <= BODY_BYTES_MAX for batch in batches)
    assert all(sum(len(key) + 1 for key in batch.keys) <= KEYS_BYTES_MAX for batch in batches)
    assert [batch.records for batch in batches[:3]] == [batches[0].records] * 3
    assert len(batches) == 4
    huge = SendTrace(
        time_ms=1,
        group="g",
        topic="T",
        message_id=",".join(f"{number:032}" for number in range(2000)),
        store_host="h:1",
        body_bytes=1,
        took_ms=1,
    )
    (batch,) = trace_batches([huge])
    assert decode_traces(batch.body) == [huge]
    assert 900 < len(batch.keys) < 1000
    assert list(trace_batches([])) == []


def test_groups_that_write_traces_are_named_as_stock_ones_are() -> None:
    assert trace_group("orders", TraceRole.CONSUME).startswith(
        "_INNER_TRACE_PRODUCER-orders-CONSUME-"
    )
    assert len(trace_group("g" * 255, TraceRole.PRODUCE)) == 255


# --- with a broker ----------------------------------------------------------------------------


async def traces_of(admin: AdminClient, message_id: str, topic: str) -> list[Trace]:
    """Wait until a message has traces; return them."""
    with trio.fail_after(WAIT_S):
        while True:
            found = await admin.message_traces(message_id, trace_topic=topic)
            if found.traces:
                return [trace for trace, _ in found.traces]


async def test_a_producer_that_is_traced(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        for topic in ("Orders", "MyTraces"):
            await admin.create_topic(topic, queues=1)
        config = ClientConfig(nameservers=it.nameserver, trace_topic="MyTraces")
        async with (
            open_tracing(config, "orders", TraceRole.PRODUCE) as own,
            open_producer(config, "orders", tracer=own) as producer,
        ):
            result = await producer.send(Message("Orders", b"hello", tag="new", keys=("k",)))
        (trace,) = await traces_of(admin, result.message_id, "MyTraces")
        assert isinstance(trace, SendTrace)
        assert (trace.group, trace.topic, trace.tag, trace.keys) == (
            "orders",
            "Orders",
            "new",
            ("k",),
        )
        assert trace.store_host == it.address()
        assert trace.offset_message_id == result.offset_message_id
        assert own.dropped == 0


async def test_a_tracer_without_a_broker_does_not_keep_anybody() -> None:
    config = ClientConfig(nameservers="127.0.0.1:1")
    with trio.fail_after(WAIT_S):
        async with open_tracing(config, "orders", TraceRole.PRODUCE) as own:
            own.sent(sent())
    assert own.dropped == 1


async def test_what_a_block_raises_comes_out_as_it_is() -> None:
    config = ClientConfig(nameservers="127.0.0.1:1")
    with pytest.raises(ValueError, match="mine"):
        async with open_tracing(config, "orders", TraceRole.PRODUCE):
            raise ValueError("mine")


async def test_a_cancelled_block_does_not_wait() -> None:
    config = ClientConfig(nameservers="127.0.0.1:1")
    started = trio.current_time()
    with trio.move_on_after(0.05):
        async with open_tracing(config, "orders", TraceRole.PRODUCE) as own:
            own.sent(sent())
            await trio.sleep_forever()
    assert trio.current_time() - started < 2


async def test_tracing_is_on_when_the_config_says_so() -> None:
    quiet = ClientConfig(nameservers="127.0.0.1:1")
    given: Tracer = tracer()
    async with traced(TRIO, quiet, "g", TraceRole.PRODUCE, None) as none:
        assert none is None
    async with traced(TRIO, quiet, "g", TraceRole.PRODUCE, given) as same:
        assert same is given
    config = ClientConfig(nameservers="127.0.0.1:1", trace_topic="MyTraces")
    async with traced(TRIO, config, "g", TraceRole.PRODUCE, None) as opened:
        assert isinstance(opened, MessageTracer)
        assert opened.topic == "MyTraces"
