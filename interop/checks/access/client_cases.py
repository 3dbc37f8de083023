"""The stock Java client with its AclClientRPCHook: what is allowed works, the rest is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.checks.access.access_session import (
    ADMIN,
    BAD_SIGNATURE,
    CLOSED,
    FORGER,
    HOUSEMATE,
    NO_ACCOUNT,
    NO_KEY,
    NO_PERMISSION,
    OPEN,
    READ_ONLY,
    READERS,
    RELOAD_S,
    STRANGER,
    USER,
    WRITE_ONLY,
    accounts,
    keys,
    refusal,
)
from interop.support.cases import expect, expect_true
from interop.support.cluster import Against
from interop.support.expectations import (
    expect_in_order,
    expect_once,
    expect_same,
    expect_sent,
    numbered,
)
from interop.support.java_client import StockClientError
from interop.support.java_messages import Outgoing
from interop.support.java_transactions import CHECK_STATES, COMMIT, UNKNOWN, transaction_producer
from interop.support.mqadmin import expect_in
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from interop.checks.access.access_session import AccessSession
    from interop.support.java_client import Driver, Producer
    from rmq.remoting.signing import Credentials

PART: Final = "client"
TRACES: Final = "RMQ_SYS_TRACE_TOPIC"


async def run_client_cases(session: AccessSession, driver: Driver) -> None:
    async with driver.producer("user", **keys(USER)) as producer:
        await _sends(session, driver, producer)
        await _consumers(session, driver, producer)
        await _queries(session, producer)
        await _refused(session, driver)
        await _white_list(session, driver)
        await _reload(session, driver, producer)
    await _transactions(session, driver)
    await _traces(session, driver)


async def _sends(session: AccessSession, driver: Driver, producer: Producer) -> None:
    with session.operation(
        PART, "sends: one by one, async, one-way, a batch, ordered, pulled back"
    ):
        messages = numbered(WRITE_ONLY, 16)
        expect_sent(await producer.send(*messages[:4]))
        expect_sent(await producer.send_async(*messages[4:8]))
        expect_sent([await producer.send_batch(*messages[8:12])])
        expect_sent(await producer.send_ordered(*messages[12:15], number=1))
        await producer.send_one_way(messages[15])
        reader = driver.pull_consumer("admin-reader", group="acl-admins", **keys(ADMIN))
        async with reader as pulls:
            expect_once(await pulls.read_topic(WRITE_ONLY, count=16), messages)

    with session.operation(PART, "a topic that may only be read, and one that may not be used"):
        for topic in (READ_ONLY, CLOSED):
            expect_in(NO_PERMISSION, await refusal(producer.send(Outgoing(topic, b"no"))))


async def _consumers(session: AccessSession, driver: Driver, producer: Producer) -> None:
    messages = numbered(OPEN, 30)
    with session.operation(PART, "a push consumer, and messages that are sent back"):
        expect_sent(await producer.send(*messages[:10]))
        consumer = driver.push_consumer(
            "reader", group=READERS, topic=OPEN, failures=1, **keys(USER)
        )
        async with consumer as reader:
            received = await reader.wait_received(20, timeout_s=40)
            expect_once([m for m in received if m.reconsume_times == 0], messages[:10])
            expect_once([m for m in received if m.reconsume_times == 1], messages[:10])

    with session.operation(PART, "an orderly push consumer, which locks its queues"):
        # It goes on where the group was.
        consumer = driver.push_consumer(
            "ordered", group=READERS, topic=OPEN, orderly=True, **keys(USER)
        )
        async with consumer as reader:
            expect_sent(await producer.send_ordered(*messages[10:20], number=2))
            expect_in_order(await reader.wait_received(10), messages[10:20])

    with session.operation(PART, "a lite pull consumer, which goes on where the group was"):
        subscribed = {"topic": OPEN, "expression": "*", **keys(USER)}
        async with driver.lite_pull_consumer("lite", group=READERS, **subscribed) as lite:
            expect_sent(await producer.send(*messages[20:]))
            expect_once(await lite.poll(10), messages[20:])
            await lite.commit()

    with session.operation(PART, "a group without permission gets nothing, and is not online"):
        consumer = driver.push_consumer("outsider", group="acl-outsiders", topic=OPEN, **keys(USER))
        async with consumer as outsider, session.mqadmin(ADMIN) as mqadmin:
            await mqadmin.refused("consumerConnection", "-g", "acl-outsiders")
            expect("received", await outsider.look(), [])

    with session.operation(PART, "pulls of a topic or a group without permission are refused"):
        for topic, group in ((WRITE_ONLY, READERS), (OPEN, "acl-outsiders")):
            async with driver.pull_consumer("puller", group=group, **keys(USER)) as pulls:
                queue = (await pulls.queues(topic))[0]
                expect_in(NO_PERMISSION, await refusal(pulls.pull(queue, 0)))


async def _queries(session: AccessSession, producer: Producer) -> None:
    message = Outgoing(OPEN, b"to be found", keys="acl-key")
    (sent,) = await producer.send(message)
    if session.against is Against.RMQ:
        with session.operation(PART, "a message is found by key, and by its unique key"):

            async def is_found() -> bool:
                try:
                    return len(await producer.query_by_key(OPEN, "acl-key")) == 1
                except StockClientError:
                    # What is not in the index yet is an error, too.
                    return False

            await wait_until("the message in the index", is_found, timeout_s=10)
            expect_same(await producer.view_by_unique_key(OPEN, sent.message_id), message)
    else:
        with session.operation(PART, "queries by key are refused: a fault of 4.9"):
            # The stock client signs a field that the stock broker leaves out.
            await refusal(producer.query_by_key(OPEN, "acl-key"))
            await refusal(producer.view_by_unique_key(OPEN, sent.message_id))

    with session.operation(PART, "a topic without permission cannot be queried"):
        try:
            found = await producer.query_by_key(WRITE_ONLY, "any")
        except StockClientError:
            found = []
        expect("found", found, [])


async def _refused(session: AccessSession, driver: Driver) -> None:
    who: tuple[tuple[str, Credentials | None, str], ...] = (
        ("without a signature", None, NO_KEY),
        ("of an account that does not exist", STRANGER, NO_ACCOUNT),
        ("with a wrong secret key", FORGER, BAD_SIGNATURE),
    )
    for number, (name, credentials, reason) in enumerate(who):
        with session.operation(PART, f"a send {name}"):
            client = driver.producer(f"refused-{number}", **keys(credentials))
            async with client as producer:
                expect_in(reason, await refusal(producer.send(Outgoing(OPEN, b"no"))))


async def _white_list(session: AccessSession, driver: Driver) -> None:
    with session.operation(PART, "an address on the white list of its account needs no signature"):
        forged = keys(HOUSEMATE) | {"secretKey": "another one"}
        async with driver.producer("housemate", **forged) as producer:
            expect_sent(await producer.send(Outgoing(OPEN, b"from home")))


async def _reload(session: AccessSession, driver: Driver, producer: Producer) -> None:
    message = Outgoing(CLOSED, b"after the change")

    async def is_taken() -> bool:
        try:
            expect_sent(await producer.send(message))
        except StockClientError:
            return False
        return True

    with session.operation(PART, "the file is changed: a closed topic is open"):
        session.write_accounts(accounts(opened=f"{CLOSED}=PUB"))
        await wait_until("the send to be taken", is_taken, timeout_s=RELOAD_S)

    with session.operation(
        PART, "the file is changed: a global white list lets in what is unsigned"
    ):
        session.write_accounts(accounts(white_list="127.0.0.*"))
        async with driver.producer("unsigned") as unsigned:

            async def is_let_in() -> bool:
                try:
                    expect_sent(await unsigned.send(Outgoing(CLOSED, b"unsigned")))
                except StockClientError:
                    return False
                return True

            await wait_until("the send to be taken", is_let_in, timeout_s=RELOAD_S)
            session.write_accounts(accounts())

            async def is_refused() -> bool:
                return not await is_let_in()

            await wait_until("the send to be refused", is_refused, timeout_s=RELOAD_S)

    with session.operation(PART, "a file that cannot be read changes nothing"):
        session.write_accounts("accounts: [")
        async with session.mqadmin(ADMIN) as mqadmin:
            await mqadmin.run("brokerStatus", "-b", session.broker.address)
        expect_sent(await producer.send(Outgoing(OPEN, b"as before")))
        session.write_accounts(accounts())


async def _transactions(session: AccessSession, driver: Driver) -> None:
    with session.operation(PART, "transactions: committed, and committed when the broker asks"):
        group = "acl-transactions"
        sender = transaction_producer(driver, "transactions", group=group, **keys(USER))
        async with sender as producer:
            at_once = Outgoing(WRITE_ONLY, b"committed at once", keys="tx-1")
            asked = Outgoing(
                WRITE_ONLY, b"committed when asked", keys="tx-2", properties={CHECK_STATES: COMMIT}
            )
            await producer.send(at_once, state=COMMIT)
            await producer.send(asked, state=UNKNOWN)

            async def is_asked() -> bool:
                return len(await producer.checks()) >= 1

            await wait_until("the broker to ask", is_asked, timeout_s=30)
        reader = driver.pull_consumer("tx-reader", group="acl-admins", **keys(ADMIN))
        async with reader as pulls:
            received = await pulls.read_topic(WRITE_ONLY, count=18)
            bodies = {message.body for message in received}
            expect_true("both committed", {at_once.body, asked.body} <= bodies)


async def _traces(session: AccessSession, driver: Driver) -> None:
    with session.operation(PART, "traces of an account without permission for their topic"):
        reader = driver.pull_consumer("trace-reader", group="acl-admins", **keys(ADMIN))
        # The client sends traces in its own time, and at the end only those that are ready.
        traced = driver.producer("traced", trace=True, **keys(USER))
        async with traced as producer, reader as pulls:
            expect_sent(await producer.send(Outgoing(OPEN, b"traced")))
            traces = await pulls.read_topic(TRACES, count=1)
            expect_true("a trace of the send", any(OPEN.encode() in each.body for each in traces))
