"""Messages by key and by physical offset: requests 12 and 33."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import QueryMessageRequest, ViewMessageRequest
from tests.broker.broker_frames import START_MS, TOPIC, bodies_of, ext, send
from tests.broker.broker_kit import part_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.broker_kit import PartBroker
    from tests.remoting.server_kit import Frame


async def by_key(
    broker: PartBroker,
    key: str = "K",
    *,
    topic: str = TOPIC,
    count: int = 32,
    begin_ms: int = 0,
    end_ms: int = 2**63 - 1,
    is_unique: bool = False,
) -> Frame:
    header = QueryMessageRequest(
        topic=topic,
        key=key,
        max_num=count,
        begin_timestamp=begin_ms,
        end_timestamp=end_ms,
        unique_key_query=is_unique,
    )
    return await broker.call(RequestCode.QUERY_MESSAGE, header)


async def at_offset(broker: PartBroker, offset: int) -> Frame:
    return await broker.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=offset))


# --- by key --------------------------------------------------------------------------------------


async def test_messages_with_a_key_are_found_in_the_order_they_were_stored(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for number in range(5):
            key = "K" if number % 2 else "K other"
            (last,) = broker.put(b"%d" % number, queue_id=number % 2, KEYS=key)
            broker.clock.ms += 1000
        broker.put(b"without a key")
        answer = await by_key(broker)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert bodies_of(answer) == [b"0", b"1", b"2", b"3", b"4"]
        assert ext(answer) == {
            "indexLastUpdateTimestamp": str(START_MS + 4000),
            "indexLastUpdatePhyoffset": str(last.end_offset - last.size),
        }


@pytest.mark.parametrize(
    "asked",
    [
        {"key": "k"},
        {"key": ""},
        {"key": "K other"},
        {"topic": "unknown"},
        {"end_ms": START_MS - 1000},
        {"begin_ms": START_MS + 2000},
        {"begin_ms": START_MS + 500, "end_ms": START_MS - 500},
        {"count": 0},
        {"count": -1},
    ],
    ids=str,
)
async def test_nothing_is_found(asked: dict[str, object], tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put(b"message", KEYS="K other")
        answer = await by_key(broker, **asked)  # type: ignore[arg-type]
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == "can not find message, maybe time range not correct"
        assert ext(answer) == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
        assert answer.body == b""


async def test_a_range_of_time_is_kept_to(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for number in range(10):
            broker.put(b"%d" % number, KEYS="K")
            broker.clock.ms += 10_000
        answer = await by_key(broker, begin_ms=START_MS + 30_000, end_ms=START_MS + 50_000)
        assert bodies_of(answer) == [b"3", b"4", b"5"]


@pytest.mark.parametrize(("wanted", "found"), [(1, 1), (40, 40), (64, 64), (1000, 64)])
async def test_at_most_so_many_are_found_the_newest_of_them(
    wanted: int, found: int, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        for number in range(100):
            broker.put(b"%d" % number, KEYS="K")
        answer = await by_key(broker, count=wanted)
        assert bodies_of(answer) == [b"%d" % number for number in range(100 - found, 100)]


async def test_a_query_by_unique_key_has_its_own_limit(tmp_path: Path) -> None:
    async with part_broker(tmp_path, {"defaultQueryMaxNum": "3"}) as broker:
        for number in range(10):
            broker.put(b"%d" % number, UNIQ_KEY="U")
        assert len(bodies_of(await by_key(broker, "U", count=64, is_unique=True))) == 3
        assert len(bodies_of(await by_key(broker, "U", count=64))) == 10


async def test_a_message_that_was_sent_is_found_by_all_its_keys(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        sent = await broker.ask(
            send(b"message", properties={"KEYS": "one two", "UNIQ_KEY": "0A000001"})
        )
        assert sent.code == ResponseCode.SUCCESS
        for key in ("one", "two", "0A000001"):
            assert bodies_of(await by_key(broker, key)) == [b"message"]


async def test_without_an_index_nothing_is_found(tmp_path: Path) -> None:
    async with part_broker(tmp_path, {"messageIndexEnable": "false"}) as broker:
        broker.put(b"message", KEYS="K")
        assert (await by_key(broker)).code == ResponseCode.QUERY_NOT_FOUND


async def test_messages_that_expired_are_not_found(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put(b"old", KEYS="K")
        for _ in range(600):
            broker.put(bytes(1024))
        broker.put(b"new", KEYS="K")
        broker.expire_log()
        assert bodies_of(await by_key(broker)) == [b"new"]


# --- by physical offset --------------------------------------------------------------------------


async def test_a_message_is_found_by_its_offset(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        results = broker.put(b"one", b"two", b"three")
        for body, result in zip((b"one", b"two", b"three"), results, strict=True):
            answer = await at_offset(broker, result.end_offset - result.size)
            assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)
            assert bodies_of(answer) == [body]


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(-1, id="negative"),
        pytest.param(-(2**63), id="most negative"),
        pytest.param(1, id="inside a message"),
        pytest.param(4, id="at the magic number"),
        pytest.param(10_000, id="behind the last one"),
        pytest.param(2**40, id="far behind it"),
        pytest.param(2**63 - 1, id="the largest"),
    ],
)
async def test_where_no_message_begins_there_is_none(offset: int, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        answer = await at_offset(broker, offset)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"can not find message by the offset, {offset}"
        assert answer.body == b""


async def test_the_end_of_the_log_is_no_message(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        last = broker.put(b"one", b"two")[-1]
        answer = await at_offset(broker, last.end_offset)
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_message_inside_another_ones_body_is_none(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put(b"inner")
        inner = (await at_offset(broker, 0)).body
        broker.put(b"before" + inner)
        outer = bytes((await at_offset(broker, len(inner))).body)
        place = len(inner) + outer.index(inner)
        assert (await at_offset(broker, place)).code == ResponseCode.SYSTEM_ERROR


async def test_a_message_that_expired_is_none(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for _ in range(600):
            broker.put(bytes(1024))
        broker.expire_log()
        assert (await at_offset(broker, 0)).code == ResponseCode.SYSTEM_ERROR
        assert (await at_offset(broker, broker.core.log.min_offset)).code == ResponseCode.SUCCESS
