"""Commands that show connected clients and how far groups have come."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from interop.checks.mqadmin.admin_session import DATA, WATCHERS
from interop.support.cases import expect, expect_true
from interop.support.java_messages import Outgoing
from interop.support.mqadmin import expect_in
from interop.support.printed import only, runtime_values, table
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from interop.checks.mqadmin.admin_session import AdminSession
    from interop.support.java_consumers import PushConsumer

CLIENT_VERSION: Final = "V4_9_8"
LAG: Final = "Lag"
LAGGARDS: Final = "laggards"
SHOWN: Final = "shown-producers"
SHOWN_WITHIN_S: Final = 5
ADDRESS: Final = r"127\.0\.0\.1:\d+"


async def run_client_commands(session: AdminSession, watcher: PushConsumer) -> None:
    await _connections(session, watcher)
    await _status(session, watcher)
    await _progress(session, watcher)


async def _connections(session: AdminSession, watcher: PushConsumer) -> None:
    with session.operation("consumerConnection", "clients and subscriptions of a group"):
        output = await session.mqadmin("consumerConnection", "-g", WATCHERS)
        connections, rest = output.split("Below is subscription:")
        ((client_id, address, language, version),) = table(connections, columns=4)
        expect(
            "client", (client_id, language, version), (watcher.client_id, "JAVA", CLIENT_VERSION)
        )
        only(ADDRESS, address)
        subscriptions = dict(table(rest.split("ConsumeType")[0], columns=2))
        wanted = {DATA: "TagA || TagB", f"%RETRY%{WATCHERS}": "*"}
        expect("subscriptions", subscriptions, wanted)
        expect_in("ConsumeType: CONSUME_PASSIVELY", rest)
        expect_in("MessageModel: CLUSTERING", rest)
        expect_in("ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET", rest)

    with session.operation("producerConnection", "of a group that has none"):
        reason = await session.refused("producerConnection", "-g", "nobody", "-t", DATA)
        expect_in("the producer group[nobody] not exist", reason)

    await session.create_topic(SHOWN)
    async with session.driver.producer("shown", group=SHOWN) as producer:
        # It shows up with its first heartbeat, a second later, at the brokers it knows by then.
        await producer.send(Outgoing(SHOWN, b"hello"))

        with session.operation("producerConnection", "clients of a producer group"):
            await wait_until("the producer", partial(_is_shown, session), timeout_s=SHOWN_WITHIN_S)
            output = await session.mqadmin("producerConnection", "-g", SHOWN, "-t", SHOWN)
            ((_, client_id, address, language, version),) = table(output, columns=5)
            wanted_client = (producer.client_id, "JAVA", CLIENT_VERSION)
            expect("client", (client_id, language, version), wanted_client)
            only(ADDRESS, address)

        with session.operation("producer", "all producers of a broker"):
            output = await session.mqadmin("producer", "-b", session.broker.address)
            pattern = (
                rf"producer group \({SHOWN}\) instance : clientId={producer.client_id},"
                rf"remoteIP=/({ADDRESS}), language=JAVA, version=409, lastUpdateTimestamp=\d+"
            )
            only(pattern, output)


async def _is_shown(session: AdminSession) -> bool:
    output = await session.mqadmin("producer", "-b", session.broker.address)
    return f"producer group ({SHOWN})" in output


async def _status(session: AdminSession, watcher: PushConsumer) -> None:
    with session.operation("consumerStatus", "of a group, into files"):
        output = await session.mqadmin("consumerStatus", "-g", WATCHERS)
        row = next(row for row in table(output, columns=4) if row[0] == "1")
        expect("client", row[1:3], [watcher.client_id, CLIENT_VERSION])
        expect_in("Same subscription in the same group of consumer", output)
        expect_in("Rebalance OK", output)
        written = (session.tool.folder / row[3]).read_text()
        expect("group", runtime_values(written).get("consumerGroup"), WATCHERS)

    with session.operation("consumerStatus", "of one client"):
        output = await session.mqadmin("consumerStatus", "-g", WATCHERS, "-i", watcher.client_id)
        values = runtime_values(output)
        expect("group", values.get("consumerGroup"), WATCHERS)
        expect("orderly", values.get("PROP_CONSUMEORDERLY"), "false")
        expect("version", values.get("PROP_CLIENT_VERSION"), CLIENT_VERSION)
        expect_in("SubExpression: TagA || TagB", output)
        for queue_id in range(4):
            only(rf"{DATA} +{session.broker.name} +{queue_id} +ProcessQueueInfo \[", output)

    with session.operation("consumerStatus", "with the stacks of its threads"):
        output = await session.mqadmin(
            "consumerStatus", "-g", WATCHERS, "-i", watcher.client_id, "-s"
        )
        expect_in("#Consumer jstack#", output)
        expect_in("PullMessageService", output)


async def _progress(session: AdminSession, watcher: PushConsumer) -> None:
    await session.create_topic(LAG)
    outgoing = [Outgoing(LAG, f"lag {n}".encode(), "TagA") for n in range(12)]
    await session.producer.send(*outgoing[:8])
    await session.consume_all(LAGGARDS, LAG, 8)
    await session.producer.send(*outgoing[8:])

    with session.operation("consumerProgress", "of a group that is behind"):
        output = await session.mqadmin("consumerProgress", "-g", LAGGARDS)
        rows = {(row[0], row[2]): row for row in table(output, columns=7) if len(row) == 7}
        for queue_id in range(4):
            row = rows[LAG, str(queue_id)]
            expect("queue", row[1:6], [session.broker.name, str(queue_id), "3", "2", "1"])
            only(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", row[6])
        expect("sum", only(r"Diff Total: (\d+)", output), "4")
        only(r"Consume TPS: \d+\.\d\d", output)

    with session.operation("consumerProgress", "with the clients of the queues"):
        output = await session.mqadmin("consumerProgress", "-g", WATCHERS, "-s", "true")
        rows = {(row[0], row[2]): row for row in table(output, columns=8) if len(row) == 8}
        ip = watcher.client_id.split("@")[0]
        expect("clients", [rows[DATA, str(queue_id)][5] for queue_id in range(4)], [ip] * 4)

    with session.operation("consumerProgress", "of all groups"):
        output = await session.mqadmin("consumerProgress")
        all_rows = {row[0]: row[1:] for row in table(output, columns=7)}
        expect("online", all_rows[WATCHERS][:4], ["1", CLIENT_VERSION, "PUSH", "CLUSTERING"])
        expect("offline", all_rows[LAGGARDS], ["0", "OFFLINE", "0", "4"])

    with session.operation("consumerConnection", "of a group that is offline"):
        reason = await session.refused("consumerConnection", "-g", LAGGARDS)
        expect_in("CODE: 206", reason)

    with session.operation("brokerConsumeStats", "all groups of a broker"):
        output = await session.mqadmin("brokerConsumeStats", "-b", session.broker.address)
        behind = [row for row in table(output, columns=8) if row[:2] == [LAG, LAGGARDS]]
        wanted = [
            [LAG, LAGGARDS, session.broker.name, str(queue_id), "3", "2", "1"]
            for queue_id in range(4)
        ]
        expect("queues", sorted(row[:7] for row in behind), wanted)
        only(r"Diff Total: \d+", output)

    with session.operation("brokerConsumeStats", "only those that are behind"):
        output = await session.mqadmin(
            "brokerConsumeStats", "-b", session.broker.address, "-l", "1"
        )
        rows_behind = [row for row in table(output, columns=8) if len(row) == 8]
        expect_true("the laggards", any(row[:2] == [LAG, LAGGARDS] for row in rows_behind))
        expect_true("nobody else", all(int(row[6]) >= 1 for row in rows_behind))
