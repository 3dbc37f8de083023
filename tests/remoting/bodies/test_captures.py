"""Bodies captured from stock processes: read into their classes and written again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.model import fastjson
from rmq.remoting.bodies import (
    ConsumeStats,
    body_crc32,
    decode_batch,
    encode_batch,
    format_properties,
    parse_properties,
)
from rmq.remoting.codes import RequestCode
from tests.remoting.bodies.captures import captured_bodies, captured_json_bodies

if TYPE_CHECKING:
    import pytest

WRITTEN_DIFFERENTLY: Final = {
    # Three topics share buckets of Java's HashSet, which hands them out in the order they came in;
    # a frozenset has forgotten that order. The names and all other places are the same.
    ("mqadmin-06-topicList", 6),
}

MESSAGES: Final = {
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.PULL_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.VIEW_MESSAGE_BY_ID,
}
SETTINGS: Final = {RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG}


def test_every_captured_json_body_is_written_again_as_the_same_bytes() -> None:
    bodies = captured_json_bodies()
    different = set()
    for captured, body_class in bodies:
        body = body_class.decode(captured.data)
        if body.encode(standard=captured.is_standard) != captured.data:
            different.add((captured.run, captured.line))
            assert body_class.decode(body.encode()) == body
            assert sorted(body.encode()) == sorted(captured.data)

    assert different == WRITTEN_DIFFERENTLY
    assert len(bodies) == 214


def test_only_tables_with_queues_for_keys_need_the_tolerant_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everything else goes the way that is many times as fast, also with bare integer keys."""
    tolerant = set()
    loads = fastjson.loads

    def noting_loads(data: bytes, slow_bytes_max: int) -> fastjson.JsonValue:
        tolerant.add(data)
        return loads(data, slow_bytes_max=slow_bytes_max)

    monkeypatch.setattr(fastjson, "loads", noting_loads)
    for captured, body_class in captured_json_bodies():
        body_class.decode(captured.data)
        assert (captured.data in tolerant) == (body_class is ConsumeStats)


def test_every_captured_body_that_is_not_json_is_of_a_known_kind() -> None:
    other = {captured.code for captured in captured_bodies() if captured.body_class is None}

    assert other == MESSAGES | SETTINGS | {RequestCode.SEND_BATCH_MESSAGE}


def test_captured_batches_are_written_again_as_the_same_bytes() -> None:
    batches = [
        captured.data
        for captured in captured_bodies()
        if captured.code is RequestCode.SEND_BATCH_MESSAGE
    ]

    assert [encode_batch(decode_batch(data)) for data in batches] == batches
    assert [len(decode_batch(data)) for data in batches] == [5, 5, 5]


def test_captured_settings_are_written_again_as_the_same_bytes() -> None:
    texts = [captured.data for captured in captured_bodies() if captured.code in SETTINGS]

    assert [format_properties(parse_properties(text)) for text in texts] == texts
    assert [parse_properties(text) for text in texts] == [
        {"flushDelayOffsetInterval": "9000"},
        {"orderMessageEnable": "true"},
    ]


def test_checksums_of_captured_registrations_are_those_in_their_headers() -> None:
    registrations = [
        captured
        for captured in captured_bodies()
        if captured.code is RequestCode.REGISTER_BROKER and not captured.is_response
    ]

    assert len(registrations) == 9
    for captured in registrations:
        assert captured.ext["bodyCrc32"] == str(body_crc32(captured.data))
