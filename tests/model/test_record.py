"""Sound records: known bytes, golden logs against declaration and client, message ids, hosts."""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.model import flags, record_layout
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import (
    NO_HOST,
    BadRecordError,
    StoredRecord,
    born_flag,
    decode_record,
    decode_records,
    message_id,
    pack_host,
    parse_message_id,
    read_head,
    tags_code,
    unpack_host,
)
from tests.remoting.frames import captured
from tests.store.built_records import (
    BLANK_HEAD,
    build_record,
    declared_head,
    drawn_records,
    plain,
)
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

VECTOR: Final = bytes.fromhex(
    "00000072DAA320A73610A686000000030000000700000000000000050000000000000400000000000000018BCFE56800"
    "0A00000900009C400000018BCFE568010A00000100002A9F0000000000000000000000000000000568656C6C6F0154"
    "00114B455953014B3102544147530154616741"
)

examples = settings(max_examples=50)


def declared_record(data: bytes) -> dict[str, Any]:
    """Return the fields of a record by the declared layout, named as in `StoredRecord`."""
    fields = plain(record_layout.Record.parse(data))
    for name in ("magic", "body_length", "topic_length", "properties_length"):
        del fields[name]
    fields["size"] = fields.pop("total_size")
    fields["topic"] = fields["topic"].decode("utf-8", "replace")
    fields["properties_bytes"] = fields.pop("properties")
    return fields


# --- known bytes ----------------------------------------------------------------------------


def test_the_known_record_is_read_field_by_field() -> None:
    assert len(VECTOR) == 114
    record = decode_record(VECTOR)
    assert record == StoredRecord(
        physical_offset=PhysicalOffset(1024),
        size=114,
        body_crc=907060870,
        queue_id=3,
        flag=7,
        queue_offset=QueueOffset(5),
        sys_flag=0,
        born_ms=1700000000000,
        born_host=pack_host("10.0.0.9", 40000),
        store_ms=1700000000001,
        store_host=pack_host("10.0.0.1", 10911),
        reconsume_times=0,
        prepared_offset=0,
        body=b"hello",
        topic="T",
        properties_bytes=b"KEYS\x01K1\x02TAGS\x01TagA",
    )
    assert record.properties == {"KEYS": "K1", "TAGS": "TagA"}
    assert record.tags_code == 2598919
    assert record.message_id == "0A00000100002A9F0000000000000400"


def test_the_known_record_is_built_by_the_declaration() -> None:
    assert build_record() == VECTOR


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        pytest.param(b"", 0, id="none"),
        pytest.param(b"TagA", 2598919, id="ASCII"),
        pytest.param(b"TagB", 2598920, id="its neighbour"),
        pytest.param(b"golden_pull", -1800785989, id="negative"),
        pytest.param("测试".encode(), 903146, id="UTF-8"),
        pytest.param("😀".encode(), 1772899, id="a surrogate pair in Java"),
        pytest.param(b"\xed\xa0\x80", 65533, id="half a surrogate pair is one replacement"),
        pytest.param(b"\xed\xa1\xc4", 2097056, id="GBK, which Java does not read as Python does"),
        pytest.param(b"\xe0\x80\x80", 65074269, id="not UTF-8, one replacement per byte"),
    ],
)
def test_tags_codes_are_the_hashes_java_17_gives(tag: bytes, code: int) -> None:
    assert tags_code(tag) == code


# --- drawn records --------------------------------------------------------------------------


@examples
@given(drawn_records())
def test_a_sound_record_is_decoded_as_declared(data: bytes) -> None:
    record = decode_record(data)
    assert msgspec.structs.asdict(record) == declared_record(data)
    assert decode_record(memoryview(data)) == record
    assert read_head(data, 0, len(data), room=len(data), verify_crc=True) == declared_head(data)
    assert parse_message_id(record.message_id) == (record.store_host, record.physical_offset)


@examples
@given(st.lists(drawn_records(), max_size=4))
def test_records_one_after_the_other_are_decoded_in_order(records: list[bytes]) -> None:
    expected = [decode_record(data) for data in records]
    assert list(decode_records(b"".join(records))) == expected
    assert list(decode_records(memoryview(b"".join(records)))) == expected


@examples
@given(record=drawn_records(), before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_a_record_is_read_the_same_wherever_it_lies(
    record: bytes, before: bytes, after: bytes
) -> None:
    data = before + record + after
    for limit in (len(before) + len(record), len(data)):
        head = read_head(data, len(before), limit, room=len(data), verify_crc=True)
        assert head == declared_head(record)


# --- golden logs ----------------------------------------------------------------------------


@pytest.mark.parametrize("store", [golden.CLEAN_MASTER, golden.CRASHED])
def test_every_golden_record_is_read_as_declared_and_built_again(store: str) -> None:
    for physical_offset, data in golden.records(store):
        fields = record_layout.Record.parse(data)
        assert record_layout.Record.build(fields) == data
        assert zlib.crc32(fields.body) & 0x7FFFFFFF == fields.body_crc
        record = decode_record(data)
        assert record.physical_offset == physical_offset
        assert msgspec.structs.asdict(record) == declared_record(data)
        head = read_head(data, 0, len(data), room=len(data), verify_crc=True)
        assert head == declared_head(data)


@pytest.mark.parametrize(
    ("store", "same"),
    [
        pytest.param(golden.CLEAN_SLAVE, golden.CLEAN_MASTER, id="master and slave"),
        pytest.param(golden.CRASHED_RECOVERED, golden.CRASHED, id="crashed and recovered"),
        pytest.param(golden.TORN, golden.CRASHED, id="torn and whole"),
        pytest.param(golden.TORN_RECOVERED, golden.CRASHED, id="torn, recovered, and whole"),
    ],
)
def test_the_other_golden_logs_hold_the_same_records(store: str, same: str) -> None:
    records = golden.sound_records(store)
    assert records == golden.records(same)[: len(records)]


@pytest.mark.parametrize("store", [golden.TORN, golden.TORN_RECOVERED])
def test_the_torn_golden_record_is_refused(store: str) -> None:
    _, torn = golden.records(store)[-1]
    for verify_crc in (True, False):
        with pytest.raises(BadRecordError, match="not the sum of its fields"):
            read_head(torn, 0, len(torn), room=len(torn), verify_crc=verify_crc)


@pytest.mark.parametrize("store", golden.STORES)
def test_a_golden_segment_is_walked_from_record_to_record_to_its_end(store: str) -> None:
    walked: list[int] = []
    for name, segment in golden.files_below(store, "commitlog").items():
        first = int(name.rpartition("/")[2])
        position = 0
        while True:
            room = len(segment) - position
            try:
                head = read_head(segment, position, len(segment), room=room, verify_crc=True)
            except BadRecordError:
                break
            if head == BLANK_HEAD:
                break
            assert head.physical_offset == first + position
            walked.append(head.physical_offset)
            position += head.size
    assert walked == [record.physical_offset for record in golden.sound_records(store)]


@pytest.mark.parametrize("name", ["clean.GoldenTopic", "clean.GoldenFill", "crashed.GoldenFill"])
def test_golden_messages_are_what_a_java_client_read(name: str) -> None:
    store = golden.CRASHED if name.startswith("crashed") else golden.CLEAN_MASTER
    records = dict(golden.records(store))
    for message in golden.messages(name):
        record = decode_record(records[message.physical_offset])
        assert record.topic == message.topic
        assert record.queue_id == message.queue_id
        assert record.queue_offset == message.queue_offset
        assert record.physical_offset == message.physical_offset
        assert record.size == message.size
        assert record.born_ms == message.born_ms
        assert record.store_ms == message.store_ms
        assert record.sys_flag == message.sys_flag
        assert record.flag == message.flag
        assert record.body_crc == message.body_crc
        assert record.reconsume_times == message.reconsume_times
        assert record.prepared_offset == message.prepared_offset
        assert record.properties == message.properties
        assert record.properties.get("TAGS") == message.tags
        assert record.properties.get("KEYS") == message.keys
        assert record.properties.get("UNIQ_KEY", record.message_id) == message.message_id
        compressed = record.sys_flag & flags.COMPRESSED
        body = zlib.decompress(record.body) if compressed else record.body
        assert len(body) == message.body_length
        assert hashlib.sha256(body).hexdigest() == message.body_sha256


def test_every_message_of_the_golden_topics_is_in_the_log_and_the_reverse() -> None:
    for store in golden.STORES:
        messages = {message.physical_offset for message in golden.messages_of(store)}
        topics = {message.topic for message in golden.messages_of(store)}
        decoded = [decode_record(record.data) for record in golden.sound_records(store)]
        assert {record.physical_offset for record in decoded if record.topic in topics} == messages


@pytest.mark.parametrize("run", ["cluster-start", "producer", "producer-binary", "transaction"])
def test_golden_records_have_the_message_ids_that_their_senders_were_told(run: str) -> None:
    answers = [frame.ext or {} for frame in captured(run) if frame.kind == "response"]
    told = {single for ext in answers if "msgId" in ext for single in ext["msgId"].split(",")}
    assert len(told) >= 3
    ids = {decode_record(data).message_id for _, data in golden.records(golden.CLEAN_MASTER)}
    assert told <= ids


# --- message ids and hosts ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "port", "packed"),
    [
        pytest.param("10.0.0.1", 10911, "0A000001 00002A9F", id="IPv4"),
        pytest.param("0.0.0.0", 0, "00000000 00000000", id="none"),
        pytest.param("255.255.255.255", 65535, "FFFFFFFF 0000FFFF", id="highest"),
        pytest.param("::1", 10911, "00000000000000000000000000000001 00002A9F", id="IPv6"),
        pytest.param("fd00::2", 1, "FD000000000000000000000000000002 00000001", id="local IPv6"),
    ],
)
def test_hosts_are_address_and_port(address: str, port: int, packed: str) -> None:
    host = pack_host(address, port)
    assert host == bytes.fromhex(packed)
    assert unpack_host(host) == (address, port)


def test_an_ipv4_address_written_as_ipv6_is_stored_as_ipv4() -> None:
    assert pack_host("::ffff:10.0.0.1", 10911) == pack_host("10.0.0.1", 10911)


def test_a_zone_is_not_part_of_a_stored_address() -> None:
    assert pack_host("fe80::1%eth0", 1) == pack_host("fe80::1", 1)


@examples
@given(st.ip_addresses(), st.integers(0, 65535))
def test_hosts_read_back_as_packed(address: IPv4Address | IPv6Address, port: int) -> None:
    host = pack_host(str(address), port)
    assert unpack_host(host)[1] == port
    assert pack_host(*unpack_host(host)) == host


@pytest.mark.parametrize("address", ["", "localhost", "1.2.3", "1.2.3.4.5", "::g"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        pack_host(address, 1)


def test_the_born_flag_goes_with_the_form_of_the_host() -> None:
    assert born_flag(NO_HOST) == born_flag(pack_host("10.0.0.1", 1)) == 0
    assert born_flag(pack_host("fd00::2", 1)) == flags.BORN_HOST_V6


@pytest.mark.parametrize(
    ("host", "physical_offset", "text"),
    [
        pytest.param(
            pack_host("10.0.0.1", 10911), 1024, "0A00000100002A9F0000000000000400", id="IPv4"
        ),
        pytest.param(
            pack_host("fd00::2", 10911),
            345161,
            "FD00000000000000000000000000000200002A9F0000000000054449",
            id="IPv6",
        ),
        pytest.param(
            pack_host("10.0.0.1", 10911), -1, "0A00000100002A9FFFFFFFFFFFFFFFFF", id="negative"
        ),
    ],
)
def test_message_ids_are_host_and_offset(host: bytes, physical_offset: int, text: str) -> None:
    assert message_id(host, PhysicalOffset(physical_offset)) == text
    assert parse_message_id(text) == (host, physical_offset)
    assert parse_message_id(text.lower()) == (host, physical_offset)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("0A00000100002A9F00000000000004", id="too short"),
        pytest.param("0A00000100002A9F000000000000040000", id="too long"),
        pytest.param("0A00000100002A9F000000000000040G", id="another letter"),
        pytest.param("0A00000100002A9F 0000000000000400", id="a blank inside"),
        pytest.param("0A00000100002A9F  00000000000400", id="blanks for digits"),
        pytest.param("0A00000100002A9F" * 3, id="between the two lengths"),
        pytest.param("0A00000100002A9F00000000000004\u0660\u0660", id="other digits"),
    ],
)
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"message id|hexadecimal|non-hex"):
        parse_message_id(text)
