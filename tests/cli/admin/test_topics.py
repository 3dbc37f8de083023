"""`rmq cluster` and `rmq topic`."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from rmq.cli.common.exit_codes import ExitCode
from rmq.client.core.messages import Message
from tests.cli.admin_kit import registered
from tests.nameserver.kit import saying

if TYPE_CHECKING:
    from tests.cli.admin_kit import Rmq, RmqJson
    from tests.cli.client_kit import Processes


def test_a_topic_from_its_creation_to_its_end(
    rmq: Rmq, rmq_json: RmqJson, processes: Processes
) -> None:
    code, output, errors = rmq("topic", "create", "Orders", "--queues", "2", "--perm", "rw")
    assert (code, errors) == (ExitCode.OK, "")
    assert re.fullmatch(r"Orders is on broker-a at 127\.0\.0\.1:\d+: 2 queues, rw\n", output)
    processes.put(*(Message("Orders", b"%d" % number) for number in range(3)))

    (listed,) = (t for t in rmq_json("topic", "list")["topics"] if t["topic"] == "Orders")
    assert listed["brokers"] == [
        {
            "broker": "broker-a",
            "read_queues": 2,
            "write_queues": 2,
            "perm": "rw",
            "is_ordered": False,
        }
    ]
    _, output, _ = rmq("topic", "list")
    assert re.search(r"^Orders +2  rw    broker-a$", output, re.MULTILINE)
    assert "TBW102" not in output
    assert "TBW102" in rmq("topic", "list", "--all")[1]

    described = rmq_json("topic", "describe", "Orders")
    assert described["messages"] == 3
    assert sorted(queue["messages"] for queue in described["queues"]) == [1, 2]
    assert described["missing"] == []
    code, output, _ = rmq("topic", "describe", "Orders")
    assert re.search(r"^messages  3$", output, re.MULTILINE)
    assert re.search(r"^broker-a +0 +0 +[12] +[12]  20\d\d-", output, re.MULTILINE)

    route = rmq_json("topic", "route", "Orders")
    assert [(each["broker"], each["write_queues"]) for each in route["brokers"]] == [
        ("broker-a", 2)
    ]

    code, output, errors = rmq("topic", "delete", "Orders")
    assert code == ExitCode.USAGE
    assert "messages  3" in output
    assert "rmq topic delete: error: there is no terminal to ask on; --yes does it" in errors
    code, output, _ = rmq("topic", "delete", "Orders", "--yes")
    assert code == ExitCode.OK
    assert "Orders is deleted at broker-a at 127.0.0.1:" in output
    code, output, errors = rmq("topic", "describe", "Orders")
    assert (code, output) == (ExitCode.FAILURE, "")
    assert errors.startswith("rmq: error: topic Orders: no broker has it")


def test_what_is_no_topic_is_refused_before_anything_is_asked(rmq: Rmq) -> None:
    code, _, errors = rmq("topic", "create", "two words")
    assert code == ExitCode.USAGE
    assert "rmq topic create: error: topic 'two words' has characters other than" in errors
    code, _, errors = rmq("topic", "create", "Orders", "--queues", "0")
    assert code == ExitCode.USAGE
    assert "'0' is not a number from 1 on" in errors


def test_all_brokers_are_asked_at_once_and_those_that_are_silent_are_named(
    rmq: Rmq, rmq_json: RmqJson, processes: Processes
) -> None:
    """Two brokers that take connections and say nothing cost one time-out, not two."""
    (alone,) = rmq_json("cluster")["brokers"]
    assert (alone["broker"], alone["role"], alone["version"]) == ("broker-a", "master", "V4_9_8")
    # A broker that has just started has not looked yet.
    assert alone["disk_used_ratio"] is None or 0 < alone["disk_used_ratio"] < 1
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        said = saying("broker-z", 0, address, cluster=alone["cluster"], topics=["Far"])
        with registered(processes, said):
            code, output, errors = rmq("cluster", "--timeout", "0.3")
            assert code == ExitCode.FAILURE
            assert re.search(rf"^broker-z +0  {address}  no answer", output, re.MULTILINE)
            assert re.search(r"^broker-a +0 .*V4_9_8", output, re.MULTILINE)
            assert errors.startswith(f"rmq: missing: broker-z at {address}: ")
            code, output, errors = rmq("topic", "list", "--timeout", "0.3", "--json")
            assert code == ExitCode.FAILURE
            assert f'"address": "{address}"' in output.partition('"missing"')[2]
            # Half an answer is not enough to delete by.
            code, _, errors = rmq("topic", "delete", "Far", "--timeout", "0.3", "--yes")
            assert code == ExitCode.FAILURE
            assert "what topic Far holds" in errors
