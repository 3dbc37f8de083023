"""What of a received message is stored, by the rules of RocketMQ 4.9.8."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.broker.sending import properties as inbound
from rmq.model import flags
from rmq.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from rmq.model.properties import decode_properties, encode_properties
from rmq.model.record import NewMessage

CLUSTER_PAIR: Final = inbound.cluster_pair("c")

NAMES: Final = st.sampled_from(["WAIT", "XWAIT", "WAITX", "DELAY", "KEYS", "CLUSTER", "a", "é"])
VALUES: Final = st.text(
    st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=0, max_size=6
)
RECEIVED: Final = st.lists(
    st.one_of(
        st.tuples(NAMES, VALUES).map("\x01".join), st.sampled_from(["", "ab", "\x01v", "n\x01"])
    ),
    max_size=6,
).map("\x02".join)
"""Properties as anybody may send them: sound pairs, and others."""

examples: Final = settings(max_examples=100)


def decoded(text: str) -> dict[str, str]:
    return decode_properties(text.encode())


# --- an ordinary message ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("received", "stored"),
    [
        pytest.param(None, "CLUSTER\x01c", id="none"),
        pytest.param("", "CLUSTER\x01c", id="empty"),
        pytest.param("KEYS\x01k", "KEYS\x01k\x02CLUSTER\x01c", id="without WAIT"),
        pytest.param("WAIT\x01true", "CLUSTER\x01c", id="only WAIT"),
        pytest.param(
            "a\x01b\x02WAIT\x01false\x02c\x01d",
            "a\x01b\x02c\x01d\x02CLUSTER\x01c",
            id="WAIT inside",
        ),
        pytest.param(
            "XWAIT\x01true", "XWAIT\x01true\x02CLUSTER\x01c", id="a name that ends as WAIT"
        ),
        pytest.param("a\x01b\x02", "a\x01b\x02CLUSTER\x01c", id="an old client's last separator"),
        pytest.param("WAIT\x01true\x02a\x01b\x02", "a\x01b\x02CLUSTER\x01c", id="both"),
    ],
)
def test_an_ordinary_message_loses_wait_and_gains_the_cluster(
    received: str | None, stored: str
) -> None:
    assert inbound.stored_properties(received, CLUSTER_PAIR) == stored.encode()


@examples
@given(RECEIVED)
def test_whatever_is_received_is_stored_as_4_9_8_understands_it(received: str) -> None:
    expected = decoded(received) | {"CLUSTER": "c"}
    expected.pop("WAIT", None)
    assert decode_properties(inbound.stored_properties(received, CLUSTER_PAIR)) == expected


def test_half_a_surrogate_pair_is_stored_as_java_writes_it() -> None:
    assert inbound.stored_properties("a\x01\ud800", CLUSTER_PAIR) == b"a\x01?\x02CLUSTER\x01c"


def test_a_cluster_name_beyond_ascii_is_stored_in_utf_8() -> None:
    assert inbound.cluster_pair("été") == "CLUSTER\x01été".encode()


@examples
@given(RECEIVED, RECEIVED)
def test_joined_rows_read_as_one_after_the_other(first: str, second: str) -> None:
    joined = inbound.joined_properties(first.encode(), second.encode())
    assert decode_properties(joined) == decoded(first) | decoded(second)


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        pytest.param(b"", b"a\x01b", b"a\x01b", id="nothing before"),
        pytest.param(b"a\x01b", b"", b"a\x01b", id="nothing behind"),
        pytest.param(b"a\x01b", b"c\x01d", b"a\x01b\x02c\x01d", id="a separator between"),
        pytest.param(b"a\x01b\x02", b"c\x01d", b"a\x01b\x02c\x01d", id="which may be there"),
    ],
)
def test_rows_are_joined_with_one_separator(first: bytes, second: bytes, joined: bytes) -> None:
    assert inbound.joined_properties(first, second) == joined


# --- whether the producer waits --------------------------------------------------------------


@pytest.mark.parametrize(
    ("received", "waits"),
    [
        pytest.param(None, True, id="no properties"),
        pytest.param("a\x01b", True, id="not said"),
        pytest.param("WAIT\x01true", True, id="true"),
        pytest.param("WAIT\x01TRUE", True, id="Java does not mind the case"),
        pytest.param("WAIT\x01false", False, id="false"),
        pytest.param("WAIT\x01False", False, id="False"),
        pytest.param("WAIT\x01no", False, id="to Java everything else is false"),
        pytest.param("a\x01b\x02WAIT\x01false\x02c\x01d", False, id="inside"),
        pytest.param("WAIT\x01false\x02WAIT\x01true", True, id="the last one counts"),
        pytest.param("WAIT\x01true\x02WAIT\x01false", False, id="the last one counts, false"),
        pytest.param("WAIT\x01false\x02WAIT\x01", False, id="an empty one does not count"),
        pytest.param("XWAIT\x01false", True, id="another name"),
        pytest.param("a\x01WAIT\x01false", True, id="inside of a value"),
    ],
)
def test_a_producer_waits_unless_it_says_that_it_does_not(
    received: str | None, waits: bool
) -> None:
    assert inbound.waits_until_safe(received) is waits


@examples
@given(RECEIVED)
def test_waiting_is_read_as_4_9_8_reads_it(received: str) -> None:
    value = decoded(received).get("WAIT")
    assert inbound.waits_until_safe(received) is (value is None or value.lower() == "true")


# --- delays ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "level"),
    [
        pytest.param("", 0, id="none"),
        pytest.param("DELAY\x013", 3, id="a level"),
        pytest.param("DELAY\x01+3", 3, id="with its sign"),
        pytest.param("DELAY\x01-1", -1, id="below zero"),
        pytest.param("DELAY\x01", 0, id="empty"),
        pytest.param("DELAY\x0199999", 99_999, id="beyond all levels"),
        pytest.param("DELAY\x011\x02DELAY\x012", 2, id="the last one counts"),
        pytest.param("XDELAY\x011", 0, id="another name"),
    ],
)
def test_a_delay_level_is_a_number(text: str, level: int) -> None:
    assert inbound.delay_level(text.encode()) == level


@pytest.mark.parametrize(
    "text", ["x", "1.5", " 1", "1 ", "1_0", "0x1", "2147483648", "-", "\uff11"]
)
def test_what_java_does_not_take_for_a_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^For input string: "):
        inbound.delay_level(f"DELAY\x01{text}".encode())


def message(**changes: object) -> NewMessage:
    fields: dict[str, object] = {"topic": "T", "queue_id": 3, "body": b"b", "born_ms": 7}
    return NewMessage(**(fields | changes))  # type: ignore[arg-type]


def test_a_parked_message_says_where_it_belongs() -> None:
    parked = inbound.parked(message(), 2, 18, b"DELAY\x012\x02WAIT\x01true\x02CLUSTER\x01c")
    assert (parked.topic, parked.queue_id) == (SCHEDULE_TOPIC, 1)
    assert decode_properties(parked.properties) == {
        "DELAY": "2",
        "WAIT": "true",
        "CLUSTER": "c",
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }
    assert (parked.body, parked.born_ms) == (b"b", 7)


def test_a_level_beyond_the_last_is_the_last() -> None:
    parked = inbound.parked(message(), 99, 18, b"DELAY\x0199")
    assert parked.queue_id == 17
    assert decode_properties(parked.properties)["DELAY"] == "18"


def test_a_message_that_was_parked_before_is_parked_for_its_new_topic() -> None:
    kept = encode_properties({"REAL_TOPIC": "old", "REAL_QID": "9", "DELAY": "3"})
    parked = inbound.parked(message(topic="%RETRY%g", queue_id=0), 3, 18, kept)
    assert decode_properties(parked.properties) == {
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
        "DELAY": "3",
    }


@pytest.mark.parametrize(
    ("sys_flag", "delayable"),
    [
        pytest.param(0, True, id="ordinary"),
        pytest.param(flags.TRANSACTION_COMMIT, True, id="committed"),
        pytest.param(flags.TRANSACTION_PREPARED, False, id="prepared"),
        pytest.param(flags.TRANSACTION_ROLLBACK, False, id="rolled back"),
        pytest.param(0x301, True, id="compressed"),
    ],
)
def test_half_and_rolled_back_messages_are_not_delayed(sys_flag: int, delayable: bool) -> None:
    assert inbound.is_delayable(sys_flag) is delayable


def test_a_half_message_rests_in_the_half_topic_with_its_transaction_bits_cleared() -> None:
    half = inbound.half(
        message(sys_flag=flags.TRANSACTION_PREPARED | 0x301), b"TRAN_MSG\x01true\x02PGROUP\x01p"
    )
    assert (half.topic, half.queue_id, half.sys_flag) == (HALF_TOPIC, 0, 0x301)
    assert decode_properties(half.properties) == {
        "TRAN_MSG": "true",
        "PGROUP": "p",
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }
