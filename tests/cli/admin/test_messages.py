"""`rmq message` and `rmq dlq`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from rmq.cli.common.exit_codes import ExitCode
from rmq.client.blocking import BlockingAdmin
from rmq.client.core.consuming.send_back import resend
from rmq.client.core.messages import Message
from rmq.client.core.routes import RouteTable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.admin_kit import Rmq, RmqJson
    from tests.cli.client_kit import Processes


def retried(rmq: Rmq, group: str) -> dict[str, Any]:
    """Return the first message that consumers of a group get for a second time."""
    code, output, _ = rmq("consume", f"%RETRY%{group}", "--count", "1", "--json")
    assert code == ExitCode.OK
    line: dict[str, Any] = json.loads(output)
    return line


def test_a_message_is_found_shown_and_delivered_again(
    rmq: Rmq, rmq_json: RmqJson, processes: Processes
) -> None:
    assert rmq("topic", "create", "Letters", "--queues", "1")[0] == ExitCode.OK
    processes.put(
        Message("Letters", b"dear \x1b[31m you", tag="new", keys=("k1",)),
        Message("Letters", b"\xff\xfe", keys=("k2",)),
    )
    (found,) = rmq_json("message", "find", "--topic", "Letters", "--key", "k1")["messages"]
    assert (found["body"], found["tag"], found["keys"]) == ("dear \x1b[31m you", "new", ["k1"])
    message_id = found["message_id"]
    shown = rmq_json("message", "get", message_id, "--topic", "Letters")
    assert shown["offset_message_id"] == found["offset_message_id"]
    assert shown["groups"] == []
    by_place = rmq_json("message", "get", found["offset_message_id"])
    assert by_place["message_id"] == message_id
    code, output, _ = rmq("message", "get", "--topic", "Letters", "--at", "broker-a:0:0")
    assert code == ExitCode.OK
    assert "place" in output
    # A terminal must not obey a message.
    assert output.endswith("dear \\x1b[31m you\n")
    _, output, _ = rmq("message", "get", "--topic", "Letters", "--at", "broker-a:0:1")
    assert output.endswith("(2 bytes that are no text)\n")

    code, _, errors = rmq("message", "find", "--topic", "Letters", "--key", "none")
    assert (code, errors) == (1, "rmq: error: no message of Letters has the key none\n")
    code, _, errors = rmq("message", "get", "--topic", "Letters", "--at", "broker-a:0:9")
    assert code == ExitCode.FAILURE
    assert "there is no message at 9 of queue 0 of Letters on broker-a" in errors
    code, _, errors = rmq("message", "get", "nonsense")
    assert code == ExitCode.USAGE
    code, _, errors = rmq("message", "trace", message_id)
    assert code == ExitCode.FAILURE

    assert rmq("consume", "Letters", "--group", "readers", "--count", "2")[0] == ExitCode.OK
    again = ("message", "resend", message_id, "--topic", "Letters")
    assert rmq(*again, "--group", "readers", "--yes")[0] == ExitCode.OK
    line = retried(rmq, "readers")
    assert line["message_id"] == message_id
    assert line["system_properties"]["RETRY_TOPIC"] == "Letters"
    assert rmq(*again, "--yes")[0] == ExitCode.OK
    assert rmq_json("topic", "describe", "Letters")["messages"] == 3


@pytest.fixture
def dead_letters(rmq: Rmq, rmq_json: RmqJson, processes: Processes) -> list[str]:
    """Three dead letters of the group `packing`, given up as its consumers would; their ids."""
    assert rmq("topic", "create", "Boxes", "--queues", "1")[0] == ExitCode.OK
    processes.put(*(Message("Boxes", b"box %d" % number) for number in range(3)))
    assert rmq("consume", "Boxes", "--group", "packing", "--count", "3")[0] == ExitCode.OK
    with BlockingAdmin(processes.nameserver) as admin:
        nameservers = admin.client.nameservers
        routes = RouteTable(nameservers.slave_reads)
        routes.put(admin.run(nameservers.route("%RETRY%packing")))
        ids = []
        for offset in range(3):
            (queue,) = admin.topic_stats("Boxes").queues
            message = admin.message_at(queue, offset)
            assert message is not None
            ids.append(message.message_id)
            now_ms = int(time.time() * 1000)
            flow = resend(
                routes,
                message,
                group="packing",
                delay_level=1,
                reconsume_times=16,
                reconsume_max=16,
                now_ms=now_ms,
            )
            admin.run(flow)
    return ids


def test_dead_letters_are_listed_written_to_a_file_and_delivered_again(
    rmq: Rmq, rmq_json: RmqJson, dead_letters: list[str], tmp_path: Path
) -> None:
    (listed,) = rmq_json("dlq", "list")["groups"]
    assert (listed["group"], listed["letters"]) == ("packing", 3)
    letters = rmq_json("dlq", "show", "packing", "--count", "2")["letters"]
    assert {each["origin_topic"] for each in letters} == {"Boxes"}
    assert len(letters) == 2
    code, output, _ = rmq("dlq", "show", "packing")
    assert all(name in output for name in (*dead_letters, "box 0", "Boxes"))

    file = tmp_path / "letters.jsonl"
    assert rmq_json("dlq", "export", "packing", str(file))["letters"] == 3
    written = [json.loads(line)["body"] for line in file.read_text().splitlines()]
    assert written == ["box 0", "box 1", "box 2"]
    code, _, errors = rmq("dlq", "export", "packing", str(file))
    assert code == ExitCode.CONFIG
    assert "exists: name another one" in errors

    code, _, errors = rmq("dlq", "resend", "packing")
    assert code == ExitCode.USAGE
    assert "which dead letters?" in errors
    code, _, errors = rmq("dlq", "resend", "packing", "--id", "other", "--yes")
    assert errors == "rmq: error: group packing has no dead letter other\n"
    again = ("dlq", "resend", "packing", "--id", dead_letters[1])
    assert rmq_json(*again, "--dry-run")["ids"] == [dead_letters[1]]
    assert rmq_json(*again, "--yes")["ids"] == [dead_letters[1]]
    line = retried(rmq, "packing")
    assert (line["body"], line["reconsume_times"]) == ("box 1", 0)
    assert line["system_properties"]["RETRY_TOPIC"] == "Boxes"
    code, _, errors = rmq("dlq", "show", "nobody")
    assert (code, errors) == (1, "rmq: error: group nobody has no dead letters\n")
