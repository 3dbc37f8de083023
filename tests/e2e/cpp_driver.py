"""A client of the C++ library `rocketmq` in a process of its own, driven by JSON lines.

    python -m tests.e2e.cpp_driver

The library keeps state and threads per process, and may hang or crash: whoever drives it can kill
it. The first line of standard input says who to be (`Identity`). Each further line is an order and
gets one answer. Push consumers also tell of each message, in between. When standard input ends, so
does the process, at once: destructors of the library are never run.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from tests.e2e.cpp_orders import (
    Answer,
    Arrival,
    Identity,
    Message,
    Order,
    Pull,
    Received,
    Role,
    Send,
    SendMode,
    Sent,
    Stop,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

Native: TypeAlias = Any
"""Something of the library, which has no stubs."""

_LIFETIME_S: Final = 110
"""No test takes that long: a driver that lives longer was forgotten or hangs."""
_CONSUMED: Final = 0
_LATER: Final = 1
_CALLBACK_S: Final = 20
_HEARTBEAT_S: Final = 20


class Lines:
    """Standard output, written by several threads."""

    def __init__(self) -> None:
        self._descriptor = os.dup(1)
        # What the library may print must not get between the lines.
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def write(self, line: Answer | Arrival) -> None:
        left = memoryview(msgspec.json.encode(line) + b"\n")
        with self._lock:
            while left:
                left = left[os.write(self._descriptor, left) :]


def main() -> None:
    faulthandler.dump_traceback_later(_LIFETIME_S, exit=True)
    lines = Lines()
    orders = sys.stdin.buffer
    identity = msgspec.json.decode(orders.readline(), type=Identity)
    # No stubs, and no such package where its native library does not exist.
    client = importlib.import_module("rocketmq.client")
    match identity.role:
        case Role.PRODUCER:
            _obey_as_producer(client, identity, orders, lines)
        case Role.PUSH_CONSUMER:
            _obey_as_push_consumer(client, identity, orders, lines)
        case Role.PULL_CONSUMER:
            _obey_as_pull_consumer(client, identity, orders, lines)
    os._exit(0)


def _obey(
    native: Native,
    orders: BinaryIO,
    lines: Lines,
    carry_out: Callable[[Order], Answer],
) -> None:
    """Carry out orders for a client that has started, and shut it down when told to."""
    lines.write(Answer())
    decoder = msgspec.json.Decoder(Order)
    for line in orders:
        order = decoder.decode(line)
        if isinstance(order, Stop):
            native.shutdown()
            lines.write(Answer())
            return
        try:
            answer = carry_out(order)
        except Exception as exc:  # noqa: BLE001 - whoever drives it decides what this means
            answer = Answer(error=f"{type(exc).__name__}: {exc}")
        lines.write(answer)


# --- producers ------------------------------------------------------------------------------------


def _obey_as_producer(
    client: Native,
    identity: Identity,
    orders: BinaryIO,
    lines: Lines,
) -> None:
    producer = client.Producer(identity.group, timeout=identity.send_timeout_ms)
    producer.set_namesrv_addr(identity.nameservers)

    def carry_out(order: Order) -> Answer:
        assert isinstance(order, Send), order
        if order.mode is SendMode.BATCH:
            result = producer.send_batch([_native(client, message) for message in order.messages])
            return Answer(sent=[_sent(result)])
        return Answer(sent=[_send(client, producer, order.mode, each) for each in order.messages])

    producer.start()
    _wait_for_heartbeat()
    _obey(producer, orders, lines, carry_out)


def _wait_for_heartbeat() -> None:
    """Return when nothing happens behind the back of a producer that has started.

    A timer of the library sends the first heartbeat after 10 ms. If that and the first send connect
    to a broker at the same time, the send fails.
    """
    log = Path.home() / "logs" / "rocketmq-cpp" / f"{os.getpid()}_rocketmq-cpp.log.0"
    deadline = time.monotonic() + _HEARTBEAT_S
    # `start` makes the first attempt, the timer the second.
    while log.read_text(errors="replace").count("sendheartbeat") < 2:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no heartbeat within {_HEARTBEAT_S} s in {log}")
        time.sleep(0.005)


def _send(
    client: Native,
    producer: Native,
    mode: SendMode,
    message: Message,
) -> Sent:
    native = _native(client, message)
    try:
        match mode:
            case SendMode.SYNC:
                return _sent(producer.send_sync(native))
            case SendMode.ORDERED:
                # No retries: they would go to another queue.
                return _sent(producer.send_orderly(native, message.shard, retry_times=0))
            case SendMode.ONE_WAY:
                producer.send_oneway(native)
            case SendMode.ONE_WAY_ORDERED:
                producer.send_oneway_orderly(native, message.shard)
            case SendMode.ASYNC:
                return _send_async(producer, native)
    except Exception as exc:  # noqa: BLE001 - the next message may fare better
        return Sent(error=f"{type(exc).__name__}: {exc}")
    return Sent()


def _send_async(producer: Native, native: Native) -> Sent:
    done = threading.Event()
    outcome: list[Sent] = []

    def succeeded(result: Native) -> None:
        outcome.append(_sent(result))
        done.set()

    def failed(exc: Exception) -> None:
        outcome.append(Sent(error=str(exc)))
        done.set()

    producer.send_async(native, succeeded, failed)
    if not done.wait(_CALLBACK_S):
        raise TimeoutError("the library called neither callback")
    return outcome[0]


def _native(client: Native, message: Message) -> Native:
    native = client.Message(message.topic)
    native.set_body(message.body)
    if message.tag:
        native.set_tags(message.tag)
    if message.keys:
        native.set_keys(message.keys)
    if message.delay_level:
        native.set_delay_time_level(message.delay_level)
    for key, value in message.properties.items():
        native.set_property(key, value)
    return native


def _sent(result: Native) -> Sent:
    return Sent(status=result.status.name, message_id=result.msg_id, queue_offset=result.offset)


# --- consumers ------------------------------------------------------------------------------------


def _obey_as_push_consumer(
    client: Native,
    identity: Identity,
    orders: BinaryIO,
    lines: Lines,
) -> None:
    ffi = importlib.import_module("rocketmq.ffi")
    model = ffi.MessageModel.BROADCASTING if identity.broadcasting else ffi.MessageModel.CLUSTERING
    consumer = client.PushConsumer(identity.group, orderly=identity.orderly, message_model=model)
    consumer.set_namesrv_addr(identity.nameservers)
    # Then messages of a queue are told of in their order.
    consumer.set_thread_count(1)

    # The library takes a refusal for one of all messages that were pulled together.
    def consume(_: object, handle: int) -> int:
        message = _received(client.RecvMessage(handle), identity.reads_properties)
        lines.write(Arrival(message=message))
        is_refused = message.reconsume_times < identity.refusals.get(message.body, 0)
        return _LATER if is_refused else _CONSUMED

    # Not `PushConsumer.subscribe`: when its callback raises, what the library is told is chance.
    callback = ffi.MSG_CALLBACK_FUNC(consume)
    ffi.dll.Subscribe(
        consumer._handle, identity.topic.encode("utf-8"), identity.expression.encode("utf-8")
    )
    register = (
        ffi.dll.RegisterMessageCallbackOrderly
        if identity.orderly
        else ffi.dll.RegisterMessageCallback
    )
    register(consumer._handle, callback)

    def carry_out(order: Order) -> Answer:
        raise TypeError(f"a push consumer cannot carry out {order}")

    consumer.start()
    _obey(consumer, orders, lines, carry_out)


def _obey_as_pull_consumer(
    client: Native,
    identity: Identity,
    orders: BinaryIO,
    lines: Lines,
) -> None:
    consumer = client.PullConsumer(identity.group)
    consumer.set_namesrv_addr(identity.nameservers)

    def carry_out(order: Order) -> Answer:
        assert isinstance(order, Pull), order
        pulled = consumer.pull(identity.topic, identity.expression, order.batch)
        return Answer(pulled=[_received(message, identity.reads_properties) for message in pulled])

    consumer.start()
    _obey(consumer, orders, lines, carry_out)


def _received(native: Native, properties: tuple[str, ...]) -> Received:
    return Received(
        topic=native.topic,
        body=native.body.decode("utf-8"),
        tag=native.tags.decode("utf-8"),
        keys=native.keys.decode("utf-8"),
        message_id=native.id,
        queue_id=native.queue_id,
        queue_offset=native.queue_offset,
        reconsume_times=native.reconsume_times,
        born_ms=native.born_timestamp,
        stored_ms=native.store_timestamp,
        properties={name: native.get_property(name).decode("utf-8") for name in properties},
    )


if __name__ == "__main__":
    main()
