"""`rmq topic`, `group`, `message`, `dlq`, `config` and `admin`, beside stock consumers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from command_line_cases import run_rmq
from inbox import Inbox

from interop.support.cases import expect, expect_true
from interop.support.expectations import expect_sent
from interop.support.java_messages import Outgoing
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from python_session import PythonSession

PART: Final = "admin commands"
TOPIC: Final = "PyRun"
GROUP: Final = "py-run"
COMMITTED_WITHIN_S: Final = 10


async def run_admin_command_cases(session: PythonSession) -> None:
    async def found(*words: str) -> dict[str, Any]:
        output = await run_rmq([*words, "-n", session.nameserver, "--json"], "")
        told: dict[str, Any] = json.loads(output)
        expect("missing", told["missing"], [])
        return told

    with session.operation(PART, "rmq cluster and rmq topic: what was created is there"):
        (broker,) = (await found("cluster"))["brokers"]
        expect("role", (broker["role"], broker["answers"]), ("master", True))
        await found("topic", "create", TOPIC, "--queues", "2")
        listed = {each["topic"] for each in (await found("topic", "list"))["topics"]}
        expect_true("listed", TOPIC in listed)
    messages = [Outgoing(TOPIC, f"run {n}".encode(), "TagA", f"run-{n}") for n in range(6)]
    expect_sent(await session.java.send(*messages))

    with session.operation(PART, "rmq topic describe, rmq message find and get"):
        expect("messages", (await found("topic", "describe", TOPIC))["messages"], 6)
        (message,) = (await found("message", "find", "--topic", TOPIC, "--key", "run-3"))[
            "messages"
        ]
        expect("body", message["body"], "run 3")
        for words in (
            [message["message_id"], "--topic", TOPIC],
            [message["offset_message_id"]],
        ):
            expect("get", (await found("message", "get", *words))["body"], "run 3")

    inbox = Inbox()
    async with session.push_consumer(GROUP, {TOPIC: "*"}, inbox) as consumer:
        await inbox.wait(6)
        with session.operation(PART, "rmq group describe: members, queues and no lag"):

            async def is_committed() -> bool:
                told = await found("group", "describe", GROUP)
                return told["lag"] == 0 and len(told["queues"]) >= 2

            await wait_until("offsets of all queues", is_committed, timeout_s=COMMITTED_WITHIN_S)
            told = await found("group", "describe", GROUP)
            (member,) = told["members"]
            expect("member", member["client_id"], consumer.client.client_id)

        with session.operation(PART, "rmq message resend: its group gets it again"):
            words = ["message", "resend", message["message_id"], "--topic", TOPIC]
            await found(*words, "--group", GROUP, "--yes")
            received = await inbox.wait(7)
            expect("body", received[-1].body, b"run 3")

    with session.operation(PART, "rmq group reset: old and new offsets, and who reads again"):
        done = await found("group", "reset", GROUP, "--topic", TOPIC, "--to", "earliest", "--yes")
        expect("new", [each["new_offset"] for each in done["queues"]], [0, 0])
        expect("lag", (await found("group", "describe", GROUP, "--topic", TOPIC))["lag"], 6)

    with session.operation(PART, "rmq config get, set and diff"):
        name = broker["broker"]
        await found("config", "set", "fileReservedTime=71", "-b", name, "--yes")
        (table,) = (await found("config", "get", "fileReservedTime"))["brokers"]
        expect("value", table["settings"]["fileReservedTime"], "71")

    with session.operation(PART, "rmq admin: names and columns of mqadmin"):
        base = ["admin", "topicStatus", "-n", session.nameserver, "-t", TOPIC]
        heads = (await run_rmq(base, "")).splitlines()[0].split("  ")
        expect("head", heads[0], "#Broker Name")

    with session.operation(PART, "rmq group delete and rmq topic delete"):
        await found("group", "delete", GROUP, "--yes")
        await found("topic", "delete", TOPIC, "--yes")
        listed = {each["topic"] for each in (await found("topic", "list"))["topics"]}
        expect_true("gone", TOPIC not in listed)
