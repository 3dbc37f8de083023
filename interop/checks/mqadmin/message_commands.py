"""Commands for messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from interop.checks.mqadmin.admin_session import DATA, WATCHERS
from interop.support.cases import expect, expect_true
from interop.support.mqadmin import expect_in
from interop.support.printed import fields, messages, only, table

if TYPE_CHECKING:
    from interop.checks.mqadmin.admin_session import AdminSession, Data
    from interop.support.java_consumers import PushConsumer
    from interop.support.printed import PrintedMessage

TAG_CODES: Final[dict[str | None, int]] = {"TagA": 2598919, "TagB": 2598920}


async def run_message_commands(session: AdminSession, data: Data, watcher: PushConsumer) -> None:
    await _send(session)
    await _query(session, data)
    await _print(session, data)
    await _queue_entries(session, data)
    await _again(session, data, watcher)


async def _send(session: AdminSession) -> None:
    queues = await session.create_topic("Sent")
    with session.operation("sendMessage", "to a topic"):
        output = await session.mqadmin(
            "sendMessage", "-t", "Sent", "-p", "by hand", "-k", "key-1", "-c", "TagA"
        )
        ((broker, _, status, message_id),) = table(output, columns=4)
        expect("sent", (broker, status), (session.broker.name, "SEND_OK"))
        (found,) = await session.reader.read_topic("Sent", count=1)
        expect("message", (found.body, found.keys, found.tags), (b"by hand", "key-1", "TagA"))
        expect("id", found.message_id, message_id)

    with session.operation("sendMessage", "to a queue"):
        output = await session.mqadmin(
            "sendMessage", "-t", "Sent", "-p", "here", "-b", session.broker.name, "-i", "3"
        )
        ((_, queue_id, status, _),) = table(output, columns=4)
        expect("sent", (queue_id, status), ("3", "SEND_OK"))
        expect("there", (await session.reader.read_queue(queues[3], count=1))[-1].body, b"here")

    with session.operation("checkMsgSendRT", "five messages"):
        await session.create_topic("Timed")
        output = await session.mqadmin("checkMsgSendRT", "-t", "Timed", "-a", "5", "-s", "100")
        *rows, average = table(output, columns=4)
        wanted = [[session.broker.name, str(n % 4), "true"] for n in range(5)]
        expect("sends", [row[:3] for row in rows], wanted)
        expect("average", average[:2], ["Avg", "RT:"])
        found_all = await session.reader.read_topic("Timed", count=5)
        expect("bodies", {message.body for message in found_all}, {b"a" * 100})

    with session.operation("sendMsgStatus", "three messages to the broker's own topic"):
        name = session.broker.name
        output = await session.mqadmin("sendMsgStatus", "-b", name, "-c", "3", "-s", "64")
        lines = output.splitlines()
        expect("lines", len(lines), 3)
        for line in lines:
            expect_in("sendStatus=SEND_OK", line)
            expect_in(f"[topic={name}, brokerName={name}, queueId=0]", line)


async def _query(session: AdminSession, data: Data) -> None:
    sent = data.sent[7]
    with session.operation("queryMsgById", "a message and who has consumed it"):
        await _expect_shown(session, data, 7, "queryMsgById", "-i", sent.offset_message_id)

    with session.operation("queryMsgById", "an id where no message is"):
        nowhere = sent.offset_message_id[:16] + f"{1 << 40:016X}"
        reason = await session.refused("queryMsgById", "-i", nowhere)
        expect_in("CODE: 1 ", reason)

    with session.operation("queryMsgByKey", "one message"):
        output = await session.mqadmin("queryMsgByKey", "-t", DATA, "-k", "data-7")
        place = [str(sent.queue.queue_id), str(sent.queue_offset)]
        expect("found", table(output, columns=3), [[sent.message_id, *place]])

    with session.operation("queryMsgByKey", "many messages"):
        output = await session.mqadmin("queryMsgByKey", "-t", DATA, "-k", "all")
        found = {row[0] for row in table(output, columns=3)}
        expect("found", found, {answer.message_id for answer in data.sent})

    with session.operation("queryMsgByKey", "a key that no message has"):
        reason = await session.refused("queryMsgByKey", "-t", DATA, "-k", "none")
        expect_in("CODE: 208", reason)

    with session.operation("queryMsgByUniqueKey", "a message and who has consumed it"):
        await _expect_shown(
            session, data, 7, "queryMsgByUniqueKey", "-t", DATA, "-i", sent.message_id
        )

    with session.operation("queryMsgByOffset", "a message and who has consumed it"):
        await _expect_shown(
            session,
            data,
            7,
            "queryMsgByOffset",
            "-t",
            DATA,
            "-b",
            session.broker.name,
            "-i",
            str(sent.queue.queue_id),
            "-o",
            str(sent.queue_offset),
        )


async def _expect_shown(
    session: AdminSession, data: Data, number: int, command: str, *arguments: str
) -> None:
    """A command must show everything about a message, and that the watchers have consumed it."""
    sent, message = data.sent[number], data.messages[number]
    stored = await session.producer.view(sent.offset_message_id)
    output = await session.mqadmin(command, *arguments)
    shown = fields(output)
    body_path = trio.Path(shown["Message Body Path"])
    expect("body", await body_path.read_bytes(), message.body)
    # It is put outside of this check's folder, wherever the tool is run.
    await body_path.unlink()
    wanted = {
        "Topic": message.topic,
        "Tags": f"[{message.tags}]",
        "Keys": f"[{message.keys}]",
        "Queue ID": str(sent.queue.queue_id),
        "Queue Offset": str(sent.queue_offset),
        "CommitLog Offset": str(stored.physical_offset),
        "Reconsume Times": "0",
        "Born Host": stored.born_host,
        "Store Host": session.broker.address,
        "System Flag": "0",
    }
    if "OffsetID" in shown:
        wanted["OffsetID"] = sent.offset_message_id
    expect("fields", {name: shown.get(name) for name in wanted}, wanted)
    expect_in(f",{stored.store_ms % 1000:03d}", shown["Store Timestamp"])
    expect_in(f"UNIQ_KEY={sent.message_id}", shown["Properties"])
    expect_in(
        f"MessageTrack [consumerGroup={WATCHERS}, trackType=CONSUMED, exceptionDesc=null]", output
    )


async def _print(session: AdminSession, data: Data) -> None:
    with session.operation("printMsg", "all messages of a topic"):
        shown = messages(await session.mqadmin("printMsg", "-t", DATA))
        _expect_printed(data, list(range(20)), shown)

    with session.operation("printMsg", "by tag"):
        shown = messages(await session.mqadmin("printMsg", "-t", DATA, "-s", "TagB"))
        _expect_printed(data, [9, 19], shown)

    with session.operation("printMsgByQueue", "messages and their tags"):
        output = await session.mqadmin(
            "printMsgByQueue",
            *("-t", DATA, "-a", session.broker.name, "-i", "1"),
            *("-p", "true", "-d", "true", "-f", "true"),
        )
        numbers = data.in_queue(1)
        _expect_printed(data, numbers, messages(output))
        for tag in ("TagA", "TagB"):
            count = sum(data.messages[n].tags == tag for n in numbers)
            if count:
                expect(tag, only(rf"Tag: {tag} +Count: (\d+)", output), str(count))

    with session.operation("consumeMessage", "a topic"):
        shown = messages(await session.mqadmin("consumeMessage", "-t", DATA))
        _expect_printed(data, list(range(20)), shown)

    with session.operation("consumeMessage", "two messages of a queue"):
        output = await session.mqadmin(
            "consumeMessage",
            *("-t", DATA, "-b", session.broker.name, "-i", "0", "-o", "1", "-c", "2"),
        )
        _expect_printed(data, data.in_queue(0)[1:3], messages(output))


def _expect_printed(data: Data, numbers: list[int], shown: list[PrintedMessage]) -> None:
    got = {(m.message_id, m.queue_id, m.queue_offset, m.body) for m in shown}
    wanted = {
        (
            data.sent[n].message_id,
            data.sent[n].queue.queue_id,
            data.sent[n].queue_offset,
            data.messages[n].body.decode(),
        )
        for n in numbers
    }
    expect("messages", got, wanted)
    expect("count", len(shown), len(numbers))


async def _queue_entries(session: AdminSession, data: Data) -> None:
    with session.operation("queryCq", "entries of a queue"):
        numbers = data.in_queue(0)
        output = await session.mqadmin(
            "queryCq", "-t", DATA, "-q", "0", "-i", "1", "-c", "2", "-b", session.broker.address
        )
        expect_in(f"max: {len(numbers)}, min: 0", output)
        for index in (1, 2):
            number = numbers[index]
            stored = await session.producer.view(data.sent[number].offset_message_id)
            code = TAG_CODES[data.messages[number].tags]
            entry = (
                rf"idx: {index}\nConsumeQueueData\{{physicOffset={stored.physical_offset},"
                rf" physicSize=\d+, tagsCode={code}, extendDataJson='null',"
                r" bitMap='null', eval=false, msg='null'\}"
            )
            only(entry, output)

    with session.operation("queryCq", "with the subscription of a group"):
        output = await session.mqadmin("queryCq", "-t", DATA, "-q", "0", "-i", "0", "-g", WATCHERS)
        expect_in('"subString":"TagA || TagB"', output)
        expect_in(f'"topic":"{DATA}"', output)
        # A broker looks at subscriptions only where entries have extensions.
        expect("entries", output.count("eval=false"), len(data.in_queue(0)))


async def _again(session: AdminSession, data: Data, watcher: PushConsumer) -> None:
    sent, message = data.sent[3], data.messages[3]
    with session.operation("queryMsgById", "have a consumer consume it again"):
        before = len(watcher.received) + len(await watcher.look())
        output = await session.mqadmin(
            "queryMsgById",
            *("-i", sent.offset_message_id, "-g", WATCHERS, "-d", watcher.client_id),
        )
        expect_in("consumeResult=CR_SUCCESS", output)
        expect("body", (await watcher.wait_received(before + 1))[-1].body, message.body)

    with session.operation("queryMsgById", "send it again"):
        output = await session.mqadmin("queryMsgById", "-i", sent.offset_message_id, "-s", "true")
        expect_in("sendStatus=SEND_OK", output)
        shown = messages(await session.mqadmin("printMsg", "-t", DATA))
        same = [m for m in shown if m.message_id == sent.message_id]
        expect("copies", len(same), 2)
        expect("bodies", {m.body for m in same}, {message.body.decode()})
        expect_true(
            f"the same size, not {[m.store_bytes for m in same]}",
            len({m.store_bytes for m in same}) == 1,
        )
