"""What the load generator sends is what it says it sends."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from benchmarks.broker_load.frames import (
    OPAQUE_FIRST,
    PullFrame,
    SendShape,
    UniqueKeys,
    create_topic_frame,
    max_offset_frame,
    send_frame,
    send_rings,
)
from rmq.model.properties import decode_properties
from rmq.remoting.bodies.batch import decode_batch
from rmq.remoting.codes import RequestCode
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.headers import (
    CreateTopicRequest,
    GetMaxOffsetRequest,
    PullMessageRequest,
    SendMessageRequestV2,
)

if TYPE_CHECKING:
    from rmq.remoting.command import Command

SINGLE = SendShape("Topic", b"x" * 128)
BATCH = SendShape("Topic", b"x" * 128, 32)


def read(frame: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(frame)
    (command,) = decoder.take(2)
    assert decoder.error is None
    return command


def keys_of(frame: bytes) -> list[str]:
    command = read(frame)
    if command.code == RequestCode.SEND_BATCH_MESSAGE:
        texts = [message.properties for message in decode_batch(command.body)]
    else:
        texts = [(command.header(SendMessageRequestV2).properties or "").encode()]
    return [decode_properties(text)["UNIQ_KEY"] for text in texts]


def test_a_single_message_is_a_send_with_a_unique_key() -> None:
    command = read(send_frame(SINGLE, 3, OPAQUE_FIRST, UniqueKeys()))
    header = command.header(SendMessageRequestV2)
    assert command.code == RequestCode.SEND_MESSAGE_V2
    assert command.opaque == OPAQUE_FIRST
    assert command.body == SINGLE.body
    assert (header.topic, header.queue_id, header.batch) == ("Topic", 3, False)
    assert header.properties is not None
    assert decode_properties(header.properties.encode()).keys() == {"UNIQ_KEY", "WAIT"}


def test_a_batch_has_as_many_messages_as_asked_for_each_with_its_own_key() -> None:
    frame = send_frame(BATCH, 1, OPAQUE_FIRST, UniqueKeys())
    command = read(frame)
    messages = decode_batch(command.body)
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    assert command.header(SendMessageRequestV2).batch
    assert [message.body for message in messages] == [BATCH.body] * 32
    assert len(set(keys_of(frame))) == 32


@pytest.mark.parametrize("shape", [SINGLE, BATCH], ids=["single", "batch"])
def test_keys_come_round_only_after_as_many_messages_as_asked_for(shape: SendShape) -> None:
    opaques = range(OPAQUE_FIRST, OPAQUE_FIRST + 3)
    rings = send_rings(shape, opaques, queues=4, keys=UniqueKeys(), keys_min=300)
    turns = -(-300 // (3 * shape.batch))
    frames = [next(rings[opaque]) for _, opaque in itertools.product(range(turns), opaques)]
    keys = [key for frame in frames for key in keys_of(frame)]
    assert len(keys) == len(set(keys)) >= 300
    assert next(rings[OPAQUE_FIRST]) == frames[0]


def test_a_ring_keeps_its_opaque_number_and_goes_through_the_queues() -> None:
    rings = send_rings(
        SINGLE, range(OPAQUE_FIRST, OPAQUE_FIRST + 1), queues=4, keys=UniqueKeys(), keys_min=8
    )
    commands = [read(next(rings[OPAQUE_FIRST])) for _ in range(8)]
    assert {command.opaque for command in commands} == {OPAQUE_FIRST}
    queue_ids = {command.header(SendMessageRequestV2).queue_id for command in commands}
    assert queue_ids == {0, 1, 2, 3}


@pytest.mark.parametrize("offset", [0, 9, 10, 10**12])
@pytest.mark.parametrize(("hold", "sys_flag"), [(True, 6), (False, 4)])
def test_a_pull_asks_from_any_offset(offset: int, hold: bool, sys_flag: int) -> None:
    command = read(PullFrame("Topic", 7, OPAQUE_FIRST + 7, hold=hold).at(offset))
    header = command.header(PullMessageRequest)
    assert command.code == RequestCode.PULL_MESSAGE
    assert command.opaque == OPAQUE_FIRST + 7
    assert (header.queue_id, header.queue_offset, header.max_msg_nums) == (7, offset, 32)
    assert (header.sys_flag, header.subscription) == (sys_flag, "*")
    assert (header.suspend_timeout_millis > 0) is hold


def test_topics_are_created_and_asked_for_by_name() -> None:
    created = read(create_topic_frame("Topic", 16, OPAQUE_FIRST)).header(CreateTopicRequest)
    assert (created.topic, created.read_queue_nums, created.write_queue_nums) == ("Topic", 16, 16)
    asked = read(max_offset_frame("Topic", 5, OPAQUE_FIRST)).header(GetMaxOffsetRequest)
    assert (asked.topic, asked.queue_id) == ("Topic", 5)
