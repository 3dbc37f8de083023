"""Traces as text: what 4.9.8 writes, and what is read of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.messages import TransactionState
from rmq.client.core.trace import (
    ConsumeCode,
    ConsumeEndTrace,
    ConsumeStartTrace,
    MessageKind,
    SendTrace,
    Trace,
    TransactionTrace,
    decode_traces,
    encode_trace,
    trace_keys,
)

SEND = SendTrace(
    time_ms=1700000000000,
    region="DefaultRegion",
    group="orders",
    topic="Orders",
    message_id="7F0000010001AAAAAAAA000000010000",
    tag="new",
    keys=("k1", "k2"),
    store_host="127.0.0.1:10911",
    body_bytes=11,
    took_ms=3,
    kind=MessageKind.DELAYED,
    offset_message_id="7F00000100002A9F0000000000000000",
    is_ok=True,
)
START = ConsumeStartTrace(
    time_ms=1700000000001,
    group="billing",
    request_id="R1",
    message_id="M1",
    retries=2,
    keys=("k",),
)
END = ConsumeEndTrace(
    request_id="R1",
    message_id="M1",
    took_ms=5,
    is_ok=False,
    code=ConsumeCode.LATER,
    time_ms=1700000000006,
    group="billing",
)
TRANSACTION = TransactionTrace(
    time_ms=1700000000002,
    group="orders",
    topic="Orders",
    message_id="M2",
    store_host="127.0.0.1:10911",
    transaction_id="M2",
    state=TransactionState.UNKNOWN,
    is_from_check=True,
)


@pytest.mark.parametrize(
    ("trace", "fields"),
    [
        pytest.param(
            SEND,
            "Pub|1700000000000|DefaultRegion|orders|Orders|7F0000010001AAAAAAAA000000010000|new"
            "|k1 k2|127.0.0.1:10911|11|3|3|7F00000100002A9F0000000000000000|true",
            id="send",
        ),
        pytest.param(START, "SubBefore|1700000000001|null|billing|R1|M1|2|k", id="start"),
        pytest.param(END, "SubAfter|R1|M1|5|false|null|4|1700000000006|billing", id="end"),
        pytest.param(
            TRANSACTION,
            "EndTransaction|1700000000002|DefaultRegion|orders|Orders|M2|null|null"
            "|127.0.0.1:10911|2|M2|UNKNOW|true",
            id="transaction",
        ),
    ],
)
def test_a_record_has_the_fields_of_4_9_8(trace: Trace, fields: str) -> None:
    text = encode_trace(trace)
    assert text == fields.replace("|", "\x01") + "\x02"
    assert decode_traces(text.encode()) == [trace]


def test_a_trace_is_found_by_ids_and_keys() -> None:
    assert trace_keys(SEND) == ("7F0000010001AAAAAAAA000000010000", "k1", "k2")
    batch = SendTrace(
        time_ms=1,
        group="g",
        topic="T",
        message_id="A,B",
        store_host="h:1",
        body_bytes=1,
        took_ms=1,
    )
    assert trace_keys(batch) == ("A", "B")


@pytest.mark.parametrize(
    ("fields", "offset_message_id", "is_ok"),
    [
        ("Pub|1|r|g|T|M|t|k|h:1|2|3|0", None, True),
        ("Pub|1|r|g|T|M|t|k|h:1|2|3|0|false", None, False),
        ("Pub|1|r|g|T|M|t|k|h:1|2|3|0|PLACE|false", "PLACE", False),
        ("Pub|1|r|g|T|M|t|k|h:1|2|3|0|PLACE|false|10.0.0.9", "PLACE", False),
    ],
)
def test_sends_of_older_clients_are_read(
    fields: str, offset_message_id: str | None, is_ok: bool
) -> None:
    (trace,) = decode_traces(fields.replace("|", "\x01").encode())
    assert isinstance(trace, SendTrace)
    assert (trace.offset_message_id, trace.is_ok) == (offset_message_id, is_ok)


def test_ends_of_older_clients_are_read() -> None:
    for fields in ("SubAfter|R|M|5|true|k", "SubAfter|R|M|5|true|k|0"):
        (trace,) = decode_traces(fields.replace("|", "\x01").encode())
        assert isinstance(trace, ConsumeEndTrace)
        assert (trace.is_ok, trace.keys, trace.time_ms, trace.group) == (True, ("k",), 0, "")


@given(st.binary())
def test_whatever_is_in_the_topic_reads_as_something(data: bytes) -> None:
    decode_traces(data)


@given(st.text(alphabet="PubS\x01\x02efore0123", max_size=200))
def test_records_that_make_no_sense_are_left_out(text: str) -> None:
    noisy = f"{text}\x02{encode_trace(SEND)}{text}"
    assert SEND in decode_traces(noisy.encode())


_names = st.text(
    alphabet=st.characters(exclude_characters="\x01\x02 ,", exclude_categories=["Cs"]), min_size=1
).filter(lambda name: name != "null")


@given(
    st.builds(
        SendTrace,
        time_ms=st.integers(0, 2**63 - 1),
        region=st.none() | _names,
        group=_names,
        topic=_names,
        message_id=_names,
        tag=st.none() | _names,
        keys=st.lists(_names).map(tuple),
        store_host=_names,
        body_bytes=st.integers(0, 2**31 - 1),
        took_ms=st.integers(0, 2**31 - 1),
        kind=st.sampled_from(MessageKind),
        offset_message_id=st.none() | _names,
        is_ok=st.booleans(),
    )
)
def test_what_is_written_reads_back(trace: SendTrace) -> None:
    assert decode_traces(encode_trace(trace).encode()) == [trace]
