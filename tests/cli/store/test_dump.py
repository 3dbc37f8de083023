"""`rmq store dump`: which records it prints, and as what."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.parameters import MOMENT
from rmq.cli.store.dump import json_line, record_fields
from rmq.model.record import StoredRecord, pack_host
from tests.patching import patch
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.store.conftest import Run
    from tests.store.golden.stores import GoldenMessage


# --- dump -------------------------------------------------------------------------------------


def records_of(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def body_of(fields: dict[str, Any]) -> bytes:
    if "body" in fields:
        assert "bodyBase64" not in fields
        text: str = fields["body"]
        return text.encode()
    return base64.b64decode(fields["bodyBase64"])


def agrees(fields: dict[str, Any], message: GoldenMessage) -> bool:
    body = body_of(fields)
    return (
        fields["topic"] == message.topic
        and fields["queueId"] == message.queue_id
        and fields["queueOffset"] == message.queue_offset
        and fields["physicalOffset"] == message.physical_offset
        and fields["storeSize"] == message.size
        and (fields["uniqueKey"] or fields["msgId"]) == message.message_id
        and fields["tags"] == message.tags
        and fields["keys"] == message.keys
        and fields["bornTimestamp"] == message.born_ms
        and fields["storeTimestamp"] == message.store_ms
        and fields["flag"] == message.flag
        and fields["sysFlag"] == message.sys_flag
        and fields["reconsumeTimes"] == message.reconsume_times
        and fields["preparedTransactionOffset"] == message.prepared_offset
        and fields["bodyCrc"] == message.body_crc
        and fields["properties"] == message.properties
        and len(body) == message.body_length
        and hashlib.sha256(body).hexdigest() == message.body_sha256
    )


@pytest.mark.parametrize("store", golden.STORES)
@pytest.mark.parametrize("scan", [[], ["--scan"]], ids=["queues", "scan"])
def test_dump_prints_every_message_as_a_java_client_read_it(
    store: str, scan: list[str], run: Run, tmp_path: Path
) -> None:
    root = golden.unpack(store, tmp_path)
    expected = sorted(golden.messages_of(store), key=lambda message: message.physical_offset)
    topics = sorted({message.topic for message in expected})
    printed: list[dict[str, Any]] = []
    for topic in topics:
        code, out, err = run("dump", root, "--topic", topic, *scan)
        assert (code, err) == (ExitCode.OK, "")
        lines = records_of(out)
        offsets = [fields["physicalOffset"] for fields in lines]
        assert offsets == sorted(offsets)
        printed += lines
    printed.sort(key=lambda fields: fields["physicalOffset"])
    assert len(printed) == len(expected)
    wrong = [
        message
        for fields, message in zip(printed, expected, strict=True)
        if not agrees(fields, message)
    ]
    assert wrong == []


def test_dump_prints_the_whole_log_in_order(run: Run, clean: Path) -> None:
    code, out, err = run("dump", clean)
    assert (code, err) == (ExitCode.OK, "")
    assert [fields["physicalOffset"] for fields in records_of(out)] == [
        record.physical_offset for record in golden.records(golden.CLEAN_MASTER)
    ]


def test_a_line_has_these_keys_in_this_order(run: Run, clean: Path) -> None:
    _, out, _ = run("dump", clean, "--limit", 1)
    (fields,) = records_of(out)
    assert list(fields) == [
        "topic",
        "queueId",
        "queueOffset",
        "physicalOffset",
        "storeSize",
        "msgId",
        "uniqueKey",
        "tags",
        "keys",
        "bornTimestamp",
        "storeTimestamp",
        "bornHost",
        "storeHost",
        "flag",
        "sysFlag",
        "reconsumeTimes",
        "preparedTransactionOffset",
        "bodyCrc",
        "properties",
        "body",
    ]
    assert fields["storeHost"] == "127.0.0.1:10911"


FILL = ["--topic", "GoldenFill"]
QUEUE = [*FILL, "--queue", "1"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(QUEUE, 500, id="queue"),
        pytest.param([*QUEUE, "--queue-offset", "10"], 1, id="queue offset"),
        pytest.param([*QUEUE, "--queue-offset", "10:20"], 10, id="queue offsets"),
        pytest.param([*QUEUE, "--queue-offset", "490:"], 10, id="queue offsets to the end"),
        pytest.param([*QUEUE, "--queue-offset", ":7"], 7, id="queue offsets from the begin"),
        pytest.param([*QUEUE, "--limit", "3"], 3, id="limit"),
        pytest.param([*FILL, "--key", "k77"], 1, id="key"),
        pytest.param([*FILL, "--key", "k77", "--queue", "2"], 0, id="key in another queue"),
        pytest.param(["--scan", "--key", "k77"], 1, id="key without topic"),
        pytest.param([*FILL, "--key", "nosuch"], 0, id="no such key"),
        pytest.param(["--topic", "NoSuchTopic"], 0, id="no such topic"),
        pytest.param(["--from-offset", "410", "--to-offset", "1231"], 2, id="offsets"),
        pytest.param(["--from-offset", "409", "--to-offset", "1232"], 2, id="between records"),
        pytest.param(["--from-offset", "879137"], 0, id="behind the end"),
        pytest.param([*QUEUE, "--from-offset", "500000", "--limit", "2"], 2, id="queue and offset"),
        pytest.param(["--from", "1794798151311"], 1, id="time"),
        pytest.param(["--from", "2026-11-16T03:02:31.310Z"], 2, id="ISO time"),
        pytest.param([*FILL, "--from", "1794798151310"], 2, id="topic and time"),
        pytest.param([*FILL, "--key", "k1999", "--to", "1794798151311"], 0, id="key and time"),
        pytest.param([*FILL, "--key", "k1999", "--from", "1794798151311"], 1, id="key from time"),
        pytest.param(["--to", "1794798147760"], 0, id="before the first"),
    ],
)
def test_filters_choose_what_is_printed(
    arguments: list[str], expected: int, run: Run, crashed: Path
) -> None:
    code, out, err = run("dump", crashed, *arguments)
    assert (code, err) == (ExitCode.OK, "")
    assert len(out.splitlines()) == expected


@pytest.mark.parametrize("moment", [1794798147760, 1794798149000, 1794798150271, 1794798151311])
def test_a_time_divides_the_log_and_each_queue_in_two(moment: int, run: Run, crashed: Path) -> None:
    earlier = sum(message.store_ms < moment for message in golden.messages_of(golden.CRASHED))
    for arguments in ([], FILL, ["--scan", *FILL]):
        before = run("dump", crashed, *arguments, "--to", moment)[1]
        after = run("dump", crashed, *arguments, "--from", moment)[1]
        assert (len(before.splitlines()), len(after.splitlines())) == (earlier, 2000 - earlier)


def test_compressed_bodies_are_printed_plain_or_raw(run: Run, clean: Path) -> None:
    _, plain, _ = run("dump", clean, "--topic", "GoldenTopic")
    _, raw, _ = run("dump", clean, "--topic", "GoldenTopic", "--raw")
    compressed = [
        pair
        for pair in zip(records_of(plain), records_of(raw), strict=True)
        if pair[0]["sysFlag"] & 1
    ]
    assert compressed
    for unpacked, packed in compressed:
        assert len(unpacked["body"]) >= 4096
        assert base64.b64decode(packed["bodyBase64"])[:2] == b"\x78\x5e"


def test_damage_ends_the_dump_with_path_and_offset(run: Run, crashed: Path) -> None:
    path = crashed / "commitlog" / f"{0:020d}"
    patch(path, 410 + 100, b"\xff")
    code, out, err = run("dump", crashed)
    assert code == ExitCode.FAILURE
    assert len(out.splitlines()) == 1
    assert f"rmq: error: {path}, physical offset 410: CRC of the body" in err
    assert "hint: " in err


@pytest.mark.parametrize(
    "arguments", [[], FILL, [*FILL, "--from", "0"]], ids=["log", "queues", "time"]
)
def test_damage_can_be_skipped_but_is_not_a_success(
    arguments: list[str], run: Run, crashed: Path
) -> None:
    patch(crashed / "commitlog" / f"{0:020d}", 410 + 100, b"\xff")
    code, out, err = run("dump", crashed, "--skip-bad", *arguments)
    assert code == ExitCode.FAILURE
    assert len(out.splitlines()) == 1999
    assert err.startswith("rmq: skipped: ")
    assert "physical offset 410" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--key", "k"], "--key needs --topic, or --scan", id="key"),
        pytest.param(["--queue", "1"], "--queue needs --topic, or --scan", id="queue"),
        pytest.param(
            [*FILL, "--queue-offset", "1"], "--queue-offset needs --queue", id="queue offset"
        ),
        pytest.param(["--from", "yesterday"], "'yesterday' is neither milliseconds", id="time"),
        pytest.param(["--limit", "0"], "'0' is not a number from 1 on", id="limit"),
        pytest.param(["--queue", "-1"], "'-1' is not a number from 0 on", id="negative"),
        pytest.param(["--queue-offset", "a:b"], "'a' is not a number", id="range"),
        pytest.param(["--nosuch"], "No such option '--nosuch'", id="unknown option"),
    ],
)
def test_a_wrong_command_line_is_explained(
    arguments: list[str], message: str, run: Run, crashed: Path
) -> None:
    code, out, err = run("dump", crashed, *arguments)
    assert (code, out) == (ExitCode.USAGE, "")
    assert message in err


# --- the form of a line -----------------------------------------------------------------------


def record(**changes: Any) -> StoredRecord:  # noqa: ANN401 - any field of the record
    fields: dict[str, Any] = {
        "physical_offset": 0,
        "size": 100,
        "body_crc": 0,
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 0,
        "sys_flag": 0,
        "born_ms": 0,
        "born_host": pack_host("10.0.0.9", 40000),
        "store_ms": 0,
        "store_host": pack_host("10.0.0.1", 10911),
        "reconsume_times": 0,
        "prepared_offset": 0,
        "body": b"",
        "topic": "T",
        "properties_bytes": b"",
    }
    return StoredRecord(**{**fields, **changes})


@pytest.mark.parametrize(
    ("body", "sys_flag", "expected"),
    [
        pytest.param(b"", 0, {"body": ""}, id="empty"),
        pytest.param("zeile\r\n\tß 消息".encode(), 0, {"body": "zeile\r\n\tß 消息"}, id="text"),
        pytest.param(b"\x00\x01", 0, {"bodyBase64": "AAE="}, id="control characters"),
        pytest.param(b"\xff\xfe", 0, {"bodyBase64": "//4="}, id="not UTF-8"),
        pytest.param(b"\x1b[2J", 0, {"bodyBase64": "G1sySg=="}, id="terminal commands"),
        pytest.param(b"not zlib", 0x301, {"body": "not zlib"}, id="not what it says"),
        pytest.param(b"\x04\x22M\x18", 0x101, {"bodyBase64": "BCJNGA=="}, id="LZ4 stays"),
        pytest.param(
            bytes.fromhex("785e4b4c4a06000 24d0127".replace(" ", "")),
            0x1,
            {"body": "abc"},
            id="zlib by an old client",
        ),
    ],
)
def test_a_body_is_text_if_it_is_text_and_base64_otherwise(
    body: bytes, sys_flag: int, expected: dict[str, str]
) -> None:
    fields = record_fields(record(body=body, sys_flag=sys_flag))
    assert {
        name: fields[name] for name in fields if name.startswith("body") and name != "bodyCrc"
    } == expected


def test_hosts_over_ipv6_are_in_brackets() -> None:
    fields = record_fields(record(born_host=pack_host("fd00::2", 4711)))
    assert (fields["bornHost"], fields["storeHost"]) == ("[fd00::2]:4711", "10.0.0.1:10911")


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        pytest.param("utf-8", '{"a":"é\\u0085\\u2028"}', id="UTF-8"),
        pytest.param("latin-1", '{"a":"\\u00e9\\u0085\\u2028"}', id="Latin-1"),
    ],
)
def test_a_line_stays_a_line_in_every_encoding(
    encoding: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    line = json_line({"a": "é\x85\u2028"})
    assert line == expected
    assert json.loads(line) == {"a": "é\x85\u2028"}


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        pytest.param("1700000000001", 1700000000001, id="milliseconds"),
        pytest.param("2023-11-14T22:13:20.001Z", 1700000000001, id="UTC"),
        pytest.param("2023-11-14 22:13:20.001", 1700000000001, id="UTC by default"),
        pytest.param("2023-11-15T06:13:20+08:00", 1700000000000, id="another zone"),
        pytest.param("2023-11-14", 1699920000000, id="a day"),
    ],
)
def test_times_are_read_as_milliseconds_or_iso(text: str, ms: int) -> None:
    assert MOMENT.convert(text, None, None) == ms
