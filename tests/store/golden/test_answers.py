"""Reads of a golden store against what the stock broker answered when it was asked the same.

A captured run asked the master of `clean-master` for bounds, times, messages and keys of a topic,
when its log was not as long as it is in the archive. Where it was then can be told from the log, so
the store is given that much of it and asked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.model.java import string_hash
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.remoting import layout
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.store.reads import GetStatus
from tests.remoting.frames import captured
from tests.store.golden import stores as golden
from tests.store.golden.compare import MemoryPlace, log_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.store.core import StoreCore
    from tests.remoting.frames import CapturedFrame

LOG_ENDS: Final = {
    # Before the OFFSET_MOVED_EVENT that the run itself causes; nothing reads that topic.
    "pull": 13_347,
    # Before the first message that was sent by mqadmin.
    "mqadmin-18-queryMsgByKey": 22_191,
    "mqadmin-22-printMsgByQueue": 22_191,
    "mqadmin-24-consumeMessage": 22_191,
}
"""The runs whose requests are asked again, and where the log ended then."""

PULL_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
}
"""What a master answers for each outcome that occurs here."""


class TagFilter:
    """What a subscription to one tag asks of the store; the client compares the text."""

    def __init__(self, tag: str) -> None:
        self._code = string_hash(tag)

    def matches_tags_code(self, tags_code: int) -> bool:
        return tags_code == self._code

    def matches_record(self, record: memoryview) -> bool:
        return True


def bounds(core: StoreCore, ext: Mapping[str, str]) -> tuple[int, int]:
    result = core.reads.get(ext["topic"], int(ext["queueId"]), QueueOffset(0), 1)
    return result.min_offset, result.max_offset


def check_min(core: StoreCore, ext: Mapping[str, str], answer: CapturedFrame) -> None:
    assert answer.ext == {"offset": str(bounds(core, ext)[0])}


def check_max(core: StoreCore, ext: Mapping[str, str], answer: CapturedFrame) -> None:
    assert answer.ext == {"offset": str(bounds(core, ext)[1])}


def check_earliest(core: StoreCore, ext: Mapping[str, str], answer: CapturedFrame) -> None:
    store_ms = core.reads.earliest_store_time(ext["topic"], int(ext["queueId"]))
    assert answer.ext == {"timestamp": str(store_ms)}


def check_search(core: StoreCore, ext: Mapping[str, str], answer: CapturedFrame) -> None:
    found = core.reads.offset_by_time(ext["topic"], int(ext["queueId"]), int(ext["timestamp"]))
    assert answer.ext == {"offset": str(found)}


def check_pull(core: StoreCore, ext: Mapping[str, str], answer: CapturedFrame) -> None:
    tag = ext["subscription"]
    result = core.reads.get(
        ext["topic"],
        int(ext["queueId"]),
        QueueOffset(int(ext["queueOffset"])),
        int(ext["maxMsgNums"]),
        None if tag == "*" else TagFilter(tag),
    )
    assert answer.code == PULL_CODES[result.status]
    assert answer.remark == result.status.value
    assert answer.ext == {
        "suggestWhichBrokerId": "1" if result.suggests_slave else "0",
        "nextBeginOffset": str(result.next_offset),
        "maxOffset": str(result.max_offset),
        "minOffset": str(result.min_offset),
    }
    assert body_of(answer) == b"".join(result.records)


def check_query(core: StoreCore, ext: Mapping[str, str], answer: CapturedFrame) -> None:
    found = core.reads.query(
        ext["topic"],
        ext["key"],
        int(ext["maxNum"]),
        int(ext["beginTimestamp"]),
        int(ext["endTimestamp"]),
    )
    assert answer.code == (ResponseCode.SUCCESS if found else ResponseCode.QUERY_NOT_FOUND)
    assert body_of(answer) == b"".join(found)


def check_view(core: StoreCore, ext: Mapping[str, str], answer: CapturedFrame) -> None:
    offset = int(ext["offset"])
    view = core.log.view(PhysicalOffset(offset), core.reads.size_at(PhysicalOffset(offset)))
    assert view is not None
    assert body_of(answer) == view


def body_of(answer: CapturedFrame) -> bytes:
    body: bytes = layout.Frame.parse(answer.frame).body
    return body


CHECKS: Final = {
    RequestCode.GET_MIN_OFFSET: check_min,
    RequestCode.GET_MAX_OFFSET: check_max,
    RequestCode.GET_EARLIEST_MSG_STORETIME: check_earliest,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: check_search,
    RequestCode.PULL_MESSAGE: check_pull,
    RequestCode.QUERY_MESSAGE: check_query,
    RequestCode.VIEW_MESSAGE_BY_ID: check_view,
}


@pytest.mark.parametrize(("run", "log_end"), LOG_ENDS.items(), ids=LOG_ENDS)
def test_our_answers_are_those_of_the_stock_broker(run: str, log_end: int) -> None:
    frames = captured(run)
    answers = {(frame.answers, frame.opaque): frame for frame in frames if frame.answers}
    asked = 0
    with MemoryPlace().opened() as core:
        core.append_raw(PhysicalOffset(0), log_bytes(golden.CLEAN_MASTER)[:log_end])
        core.dispatcher.catch_up()
        assert core.dispatcher.dispatched == log_end
        for frame in frames:
            if frame.kind == "request" and frame.code in CHECKS:
                code = RequestCode(frame.code)
                CHECKS[code](core, frame.ext or {}, answers[code.name, frame.opaque])
                asked += 1
    assert asked


def test_the_runs_ask_in_every_way_a_store_can_be_read() -> None:
    asked = {frame.code for run in LOG_ENDS for frame in captured(run) if frame.kind == "request"}
    assert asked >= CHECKS.keys()
