"""The load generator counts what came back, and nothing else."""

from __future__ import annotations

import pytest

from benchmarks.broker_load.answers import (
    SENT_AT,
    AnswerCutter,
    check_records,
    is_success,
    max_offset,
    next_offset,
    sent_times,
)
from benchmarks.broker_load.frames import OPAQUE_FIRST
from rmq.model import record_layout
from rmq.remoting.codes import LanguageCode, ResponseCode
from rmq.remoting.command import FrameEncoder
from rmq.remoting.headers import (
    GetMaxOffsetResponse,
    PullMessageResponse,
    SendMessageResponse,
)

ENCODER = FrameEncoder(language=LanguageCode.JAVA)
SENT = SendMessageResponse(msg_id="7F000001", queue_id=1, queue_offset=12, trace_on=True)
PULLED = PullMessageResponse(
    suggest_which_broker_id=0, next_begin_offset=132, min_offset=0, max_offset=1000
)


def stream() -> bytes:
    """Three answers, the second a refusal, the third with a body."""
    return b"".join(
        (
            ENCODER.response(OPAQUE_FIRST + 5, 0, SENT, 0),
            ENCODER.response(OPAQUE_FIRST, ResponseCode.SYSTEM_BUSY, None, 0, remark="too busy"),
            ENCODER.response(OPAQUE_FIRST + 1, 0, PULLED, 3),
            b"abc",
        )
    )


def record(queue_offset: int, body: bytes = b"") -> bytes:
    properties = b"TAGS\x01TagA"
    built: bytes = record_layout.Record.build(
        {
            "total_size": record_layout.RECORD_BYTES_MIN
            + len(body)
            + len(b"Topic")
            + len(properties),
            "magic": record_layout.MESSAGE_MAGIC,
            "body_crc": 0,
            "queue_id": 1,
            "flag": 0,
            "queue_offset": queue_offset,
            "physical_offset": 4096,
            "sys_flag": 0,
            "born_ms": 1,
            "born_host": bytes(8),
            "store_ms": 2,
            "store_host": bytes(8),
            "reconsume_times": 0,
            "prepared_offset": 0,
            "body_length": len(body),
            "body": body,
            "topic_length": len(b"Topic"),
            "topic": b"Topic",
            "properties_length": len(properties),
            "properties": properties,
        }
    )
    return built


def test_answers_are_the_same_wherever_the_stream_is_cut() -> None:
    data = stream()
    for cut in range(len(data) + 1):
        counting, reading = AnswerCutter(), AnswerCutter()
        opaques = counting.opaques(data[:cut]) + counting.opaques(data[cut:])
        answers = reading.answers(data[:cut]) + reading.answers(data[cut:])
        assert opaques == [OPAQUE_FIRST + 5, OPAQUE_FIRST, OPAQUE_FIRST + 1], cut
        assert [opaque for opaque, _, _ in answers] == opaques, cut
        assert [body for _, _, body in answers] == [b"", b"", b"abc"], cut
        assert [is_success(header) for _, header, _ in answers] == [True, False, True], cut


@pytest.mark.parametrize("method", ["opaques", "answers"])
def test_an_answer_that_is_no_success_is_noted_with_its_code_and_remark(method: str) -> None:
    cutter = AnswerCutter()
    getattr(cutter, method)(stream())
    ((text, count),) = cutter.failures.items()
    assert count == 1
    assert '"code":2 ' in text
    assert "too busy" in text


def test_an_answer_without_its_opaque_number_stops_the_run() -> None:
    data = stream().replace(b'"opaque"', b'"opaqua"', 1)
    with pytest.raises(ValueError, match="invalid literal"):
        AnswerCutter().opaques(data)


def test_offsets_are_read_from_headers() -> None:
    assert next_offset(ENCODER.response(1, 0, PULLED, 0)) == 132
    assert max_offset(ENCODER.response(1, 0, GetMaxOffsetResponse(offset=77), 0)) == 77
    with pytest.raises(ValueError, match="not found"):
        next_offset(ENCODER.response(1, 0, SENT, 0))


def test_records_in_a_row_are_right() -> None:
    check_records(record(100) + record(101) + record(102), 100, 3)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(record(100), "1 records", id="too few"),
        pytest.param(record(100) + record(101) + record(102), "3 records", id="too many"),
        pytest.param(record(100) + record(102), "offset 102", id="one left out"),
        pytest.param(record(101) + record(102), "offset 101", id="another offset"),
        pytest.param(record(100) + record(101)[:-1], "2 records in", id="cut short"),
        pytest.param(bytes(100), "magic 0", id="no records"),
    ],
)
def test_records_that_are_not_what_was_asked_for_are_refused(body: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_records(body, 100, 2)


def test_times_are_read_from_the_bodies_of_records() -> None:
    records = [record(number, SENT_AT.pack(1_000 + number) + b"xxx") for number in range(3)]
    assert sent_times(b"".join(records)) == [1_000, 1_001, 1_002]
