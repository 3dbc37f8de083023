"""What the stock mqadmin sees of our clients, and does with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from inbox import Inbox

from interop.support.cases import MismatchError, expect, expect_true
from interop.support.expectations import expect_once, expect_sent
from interop.support.java_messages import Outgoing
from interop.support.mqadmin import expect_in
from interop.support.printed import fields, messages, only, runtime_values, table
from interop.support.waiting import wait_until
from rmq.client.core.consuming.results import ConsumeResult

if TYPE_CHECKING:
    from python_session import PythonSession

    from interop.support.java_messages import Sent
    from rmq.client.tasks.push_consumer import PushConsumer

PART: Final = "mqadmin"
TOPIC: Final = "PyWatched"
GROUP: Final = "py-watched"
ADDRESS: Final = r"127\.0\.0\.1:\d+"
VERSION: Final = "V4_9_8"
LANGUAGE: Final = "PYTHON"
SHOWN_WITHIN_S: Final = 5
# A group's offsets reach the broker within 5 s.
COMMITTED_WITHIN_S: Final = 10
# A client that is told to go back may take its time, as stock clients do (10 s).
RESET_WITHIN_S: Final = 40


async def run_operator_cases(session: PythonSession) -> None:
    await session.create_topic(TOPIC)
    outgoing = [
        Outgoing(TOPIC, f"watched {n}".encode(), "TagA", f"watched-{n} all") for n in range(12)
    ]
    inbox = Inbox()
    async with session.push_consumer(GROUP, {TOPIC: "TagA || TagB"}, inbox) as consumer:
        sent = await session.send(*outgoing)
        expect_sent(sent)
        expect_once(await inbox.wait(12), outgoing)
        await _connections(session, consumer)
        await _status(session, consumer)
        await _progress(session, consumer)
        await _queries(session, sent, outgoing)
        await _consume_directly(session, consumer, inbox, sent)
    await _reset(session)


async def _connections(session: PythonSession, consumer: PushConsumer) -> None:
    with session.operation(PART, "consumerConnection: our client and its subscriptions"):
        output = await session.mqadmin.run("consumerConnection", "-g", GROUP)
        connections, rest = output.split("Below is subscription:")
        ((client_id, address, language, version),) = table(connections, columns=4)
        wanted = (consumer.client.client_id, LANGUAGE, VERSION)
        expect("client", (client_id, language, version), wanted)
        only(ADDRESS, address)
        subscriptions = dict(table(rest.split("ConsumeType")[0], columns=2))
        expect("subscriptions", subscriptions, {TOPIC: "TagA || TagB", f"%RETRY%{GROUP}": "*"})
        expect_in("ConsumeType: CONSUME_PASSIVELY", rest)
        expect_in("MessageModel: CLUSTERING", rest)
        expect_in("ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET", rest)

    with session.operation(PART, "producerConnection: our producer"):

        async def is_shown() -> bool:
            output = await session.mqadmin.run("producer", "-b", session.broker.address)
            return f"producer group ({session.producer.group})" in output

        await wait_until("the producer", is_shown, timeout_s=SHOWN_WITHIN_S)
        group = session.producer.group
        output = await session.mqadmin.run("producerConnection", "-g", group, "-t", TOPIC)
        ((_, client_id, address, language, version),) = table(output, columns=5)
        expect_true("a client id", "@" in client_id)
        expect("client", (language, version), (LANGUAGE, VERSION))
        only(ADDRESS, address)


async def _status(session: PythonSession, consumer: PushConsumer) -> None:
    with session.operation(PART, "consumerStatus: of the group, into files"):
        output = await session.mqadmin.run("consumerStatus", "-g", GROUP)
        row = next(row for row in table(output, columns=4) if row[0] == "1")
        expect("client", row[1:3], [consumer.client.client_id, VERSION])
        expect_in("Same subscription in the same group of consumer", output)
        expect_in("Rebalance OK", output)
        written = (session.driver.folder / row[3]).read_text()
        expect("group", runtime_values(written).get("consumerGroup"), GROUP)

    with session.operation(PART, "consumerStatus: of our client"):
        output = await session.mqadmin.run(
            "consumerStatus", "-g", GROUP, "-i", consumer.client.client_id
        )
        values = runtime_values(output)
        expect("group", values.get("consumerGroup"), GROUP)
        expect("orderly", values.get("PROP_CONSUMEORDERLY"), "false")
        expect("version", values.get("PROP_CLIENT_VERSION"), VERSION)
        expect("type", values.get("PROP_CONSUME_TYPE"), "CONSUME_PASSIVELY")
        expect_in("SubExpression: TagA || TagB", output)
        for queue_id in range(4):
            only(rf"{TOPIC} +{session.broker.name} +{queue_id} +ProcessQueueInfo \[", output)

    with session.operation(PART, "consumerStatus: with what runs in our client"):
        output = await session.mqadmin.run(
            "consumerStatus", "-g", GROUP, "-i", consumer.client.client_id, "-s"
        )
        expect_in("#Consumer jstack#", output)


async def _progress(session: PythonSession, consumer: PushConsumer) -> None:
    with session.operation(PART, "consumerProgress: nothing is left, and whose queues they are"):

        async def is_committed() -> bool:
            try:
                return "Diff Total: 0" in await session.mqadmin.run("consumerProgress", "-g", GROUP)
            except MismatchError as exc:
                # It has a code for "nothing yet".
                if "CODE: 206" not in str(exc):
                    raise
                return False

        await wait_until("the offsets", is_committed, timeout_s=COMMITTED_WITHIN_S)
        output = await session.mqadmin.run("consumerProgress", "-g", GROUP, "-s", "true")
        rows = {(row[0], row[2]): row for row in table(output, columns=8) if len(row) == 8}
        ip = consumer.client.client_id.split("@")[0]
        for queue_id in range(4):
            row = rows[TOPIC, str(queue_id)]
            wanted = [session.broker.name, str(queue_id), "3", "3", ip, "0"]
            expect("queue", row[1:7], wanted)


async def _queries(session: PythonSession, sent: list[Sent], outgoing: list[Outgoing]) -> None:
    with session.operation(PART, "queryMsgByKey: a message of ours"):
        output = await session.mqadmin.run("queryMsgByKey", "-t", TOPIC, "-k", "watched-7")
        place = [str(sent[7].queue.queue_id), str(sent[7].queue_offset)]
        expect("found", table(output, columns=3), [[sent[7].message_id, *place]])
        output = await session.mqadmin.run("queryMsgByKey", "-t", TOPIC, "-k", "all")
        found = {row[0] for row in table(output, columns=3)}
        expect("found", found, {answer.message_id for answer in sent})

    with session.operation(PART, "queryMsgByUniqueKey: a message of ours, consumed by ours"):
        output = await session.mqadmin.run(
            "queryMsgByUniqueKey", "-t", TOPIC, "-i", sent[7].message_id
        )
        shown = fields(output)
        body_path = trio.Path(shown["Message Body Path"])
        expect("body", await body_path.read_bytes(), outgoing[7].body)
        # It is put outside of this check's folder, wherever the tool is run.
        await body_path.unlink()
        expect("queue offset", shown["Queue Offset"], str(sent[7].queue_offset))
        expect("keys", shown["Keys"], f"[{outgoing[7].keys}]")
        expect_in(f"UNIQ_KEY={sent[7].message_id}", shown["Properties"])
        expect_in(
            f"MessageTrack [consumerGroup={GROUP}, trackType=CONSUMED, exceptionDesc=null]", output
        )

    with session.operation(PART, "consumeMessage: a topic that ours filled"):
        shown_messages = messages(await session.mqadmin.run("consumeMessage", "-t", TOPIC))
        bodies = {(message.message_id, message.body) for message in shown_messages}
        wanted = {
            (answer.message_id, message.body.decode())
            for answer, message in zip(sent, outgoing, strict=True)
        }
        expect("messages", bodies, wanted)


async def _consume_directly(
    session: PythonSession, consumer: PushConsumer, inbox: Inbox, sent: list[Sent]
) -> None:
    results: dict[str, object] = {
        "CR_SUCCESS": None,
        "CR_LATER": ConsumeResult.LATER,
        "CR_THROW_EXCEPTION": ValueError("no"),
    }
    for result, answer in results.items():
        with session.operation(PART, f"queryMsgById: have ours consume it again, {result}"):
            before = len(inbox.received)
            inbox.answer_next(answer)
            output = await session.mqadmin.run(
                "queryMsgById",
                *("-i", sent[3].offset_message_id, "-g", GROUP, "-d", consumer.client.client_id),
            )
            expect_in(f"consumeResult={result}", output)
            expect("id", (await inbox.wait(before + 1))[-1].message_id, sent[3].message_id)


async def _reset(session: PythonSession) -> None:
    (queue,) = await session.create_topic("PyRewound", queues=1)
    inbox = Inbox()
    outgoing = [Outgoing("PyRewound", f"rewound {n}".encode()) for n in range(8)]
    async with session.push_consumer("py-rewound", "PyRewound", inbox):
        for message in outgoing:
            expect_sent(await session.send(message))
            await trio.sleep(0.05)
        stored = await session.reader.read_queue(queue, count=8)
        await inbox.wait(8)
        name = session.broker.name

        with session.operation(PART, "resetOffsetByTime: ours goes back and consumes again"):
            output = await session.mqadmin.run(
                "resetOffsetByTime",
                *("-g", "py-rewound", "-t", "PyRewound", "-s", str(stored[2].store_ms)),
            )
            expect("queue", table(output, columns=3)[-1], [name, "0", "2"])
            got = (await inbox.wait(14, timeout_s=RESET_WITHIN_S))[8:]
            expect_once(got, outgoing[2:])

        with session.operation(PART, "skipAccumulatedMessage: ours goes to the end"):
            output = await session.mqadmin.run(
                "skipAccumulatedMessage", "-g", "py-rewound", "-t", "PyRewound"
            )
            expect("queue", table(output, columns=3), [[name, "0", "8"]])
            (last,) = (Outgoing("PyRewound", b"the last"),)
            expect_sent(await session.java.send(last))
            got = (await inbox.wait(15, timeout_s=RESET_WITHIN_S))[14:]
            expect_once(got, [last])
