"""Requests signed by our client, for a broker that lets in only whom it knows (`aclEnable`).

The stock broker reads accounts from `conf/plain_acl.yml`, ours also from one beside its settings.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from encrypted_cases import run_encrypted_cases, server_settings
from inbox import Inbox
from our_messages import as_received, as_sent, ours
from python_session import BROKER_SETTINGS

from interop.support.cases import expect, expect_true
from interop.support.certificates import Authority
from interop.support.cluster import Against, open_cluster
from interop.support.expectations import expect_once, expect_same, expect_sent, numbered
from interop.support.java_messages import Outgoing
from interop.support.mqadmin import expect_in
from rmq.client.blocking import BlockingAdmin, BlockingConsumer, BlockingProducer
from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.trio.opening import open_admin, open_producer, open_push_consumer
from rmq.errors import RmqError
from rmq.remoting.codes import Serialization
from rmq.remoting.signing import Credentials

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from interop.support.cluster import Cluster
    from interop.support.java_client import DriverKit
    from interop.support.results import Operations

PART: Final = "signed"
TOPIC: Final = "PySigned"
GROUP: Final = "py-signed"
FORBIDDEN: Final = "PyForbidden"
BLOCKING: Final = "PyBlocking"
ROOT: Final = Path(__file__).resolve().parent.parent.parent.parent
COMMAND_S: Final = 40

ADMIN: Final = Credentials(access_key="interopAdmin", secret_key="interopAdminSecret")
USER: Final = Credentials(access_key="interopUser", secret_key="interopUserSecret")
FORGER: Final = Credentials(access_key="interopUser", secret_key="a wrong guess")
STRANGER: Final = Credentials(access_key="interopStranger", secret_key="no matter")

ACCOUNTS: Final = f"""\
accounts:
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  whiteRemoteAddress:
  admin: true
- accessKey: {USER.access_key}
  secretKey: {USER.secret_key}
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - {TOPIC}=PUB|SUB
  groupPerms:
  - {GROUP}=PUB|SUB
"""


async def run_signed_cases(
    operations: Operations, kit: DriverKit, folder: Path, against: Against
) -> None:
    authority = Authority(folder, "ours")
    async with open_cluster(against, folder, tls=server_settings(authority)) as cluster:
        await cluster.add_nameserver()
        broker = cluster.place_broker("broker-acl")
        conf = folder / "conf" if against is Against.STOCK else broker.folder
        (conf / "acl").mkdir()
        (conf / "plain_acl.yml").write_text(ACCOUNTS)
        await cluster.start_broker(broker, {**BROKER_SETTINGS, "aclEnable": "true"})
        with operations.operation(PART, "an administrator creates topics"):
            async with open_admin(_config(cluster, ADMIN)) as admin:
                for topic in (TOPIC, FORBIDDEN):
                    await admin.create_topic(topic, queues=4)
        await _accepted(operations, kit, cluster)
        await _blocking(operations, cluster)
        await _blocking_admin(operations, cluster)
        await _command_line(operations, cluster, folder)
        await run_encrypted_cases(
            operations,
            cluster,
            authority,
            Authority(folder, "strangers"),
            credentials=USER,
            topic=TOPIC,
            group=GROUP,
        )
        await _refused(operations, cluster)


def _config(
    cluster: Cluster,
    credentials: Credentials | None,
    serialization: Serialization = Serialization.JSON,
) -> ClientConfig:
    return ClientConfig(
        nameservers=cluster.nameserver, credentials=credentials, serialization=serialization
    )


async def _accepted(operations: Operations, kit: DriverKit, cluster: Cluster) -> None:
    messages = numbered(TOPIC, 40, tags="TagA")
    keys = {"accessKey": USER.access_key, "secretKey": USER.secret_key}
    inbox = Inbox()
    async with (
        kit.driver(cluster.nameserver) as driver,
        driver.producer("signed", **keys) as java,
        open_producer(_config(cluster, USER), "py-signers") as producer,
        open_push_consumer(
            _config(cluster, USER), GROUP, TOPIC, inbox, consume_from=ConsumeFrom.FIRST
        ),
    ):
        with operations.operation(PART, "ours to ours: sends, a batch, one-way"):
            results = [await producer.send(ours(message)) for message in messages[:4]]
            expect_sent([as_sent(result) for result in results])
            await producer.send_batch([ours(message) for message in messages[4:8]])
            for message in messages[8:12]:
                await producer.send_oneway(ours(message))
            expect_once(await inbox.wait(12), messages[:12])

        with operations.operation(PART, "pipelined sends"):
            pending = [await producer.send_soon(ours(message)) for message in messages[12:20]]
            expect_sent([as_sent(await send.wait()) for send in pending])
            expect_once(await inbox.wait(20), messages[:20])

        with operations.operation(PART, "binary header"):
            config = _config(cluster, USER, Serialization.ROCKETMQ)
            async with open_producer(config, "py-binary-signers") as other:
                results = [await other.send(ours(message)) for message in messages[20:24]]
                expect_sent([as_sent(result) for result in results])
                expect_once(await inbox.wait(24), messages[:24])

        with operations.operation(PART, "a stock producer to ours"):
            expect_sent(await java.send(*messages[24:32]))
            expect_once(await inbox.wait(32), messages[:32])

    with operations.operation(PART, "a message that failed is sent back, signed"):
        failing = Inbox(failures=1)
        async with (
            open_producer(_config(cluster, USER), "py-signers") as producer,
            open_push_consumer(_config(cluster, USER), GROUP, TOPIC, failing),
        ):
            await producer.send(ours(messages[32]))
            received = await failing.wait(2, timeout_s=40)
            expect("reconsume times", [m.reconsume_times for m in received], [0, 1])

    with operations.operation(PART, "queries by key and by unique key"):
        async with open_admin(_config(cluster, USER)) as admin:
            found = (await admin.messages_by_key(TOPIC, f"{TOPIC}-2")).messages
            expect_once([as_received(message) for message in found], messages[2:3])
            one = await admin.message_by_unique_key(TOPIC, results[0].message_id)
            assert one is not None
            expect_same(as_received(one), messages[20])


async def _blocking(operations: Operations, cluster: Cluster) -> None:
    with operations.operation(PART, "the blocking client sends and polls"):
        message = Outgoing(TOPIC, b"blocking", keys="blocking")

        def send_and_poll() -> list[bytes]:
            config = _config(cluster, USER)
            with BlockingProducer(config, "py-signers") as producer:
                result = producer.send(ours(message))
            with BlockingConsumer(config, GROUP) as consumer:
                consumer.assign([result.queue])
                consumer.seek(result.queue, result.queue_offset)
                return [message.body for message in consumer.poll(timeout_s=5)]

        expect("polled", await trio.to_thread.run_sync(send_and_poll), [b"blocking"])


async def _blocking_admin(operations: Operations, cluster: Cluster) -> None:
    with operations.operation(PART, "the blocking client asks, and changes what its account may"):

        def ask_and_change() -> str:
            with BlockingAdmin(_config(cluster, ADMIN)) as admin:
                admin.create_topic(BLOCKING, queues=2)
                expect_true("the new topic", BLOCKING in admin.list_topics())
            with BlockingAdmin(_config(cluster, USER)) as user:
                expect("topic", user.topic_stats(TOPIC).topic, TOPIC)
                try:
                    user.create_topic("PyNever")
                except RmqError as exc:
                    return str(exc.hint)
                return ""

        hint = await trio.to_thread.run_sync(ask_and_change)
        expect_in("use an account with `admin: true`", hint)


async def _command_line(operations: Operations, cluster: Cluster, folder: Path) -> None:
    file = folder / "tools.yml"
    file.write_text(f"accessKey: {USER.access_key}\nsecretKey: {USER.secret_key}\n")
    place = ["-n", cluster.nameserver, TOPIC]
    lines = "signed line 1\nsigned line 2\n"
    with operations.operation(PART, "rmq produce and rmq consume with a file, and its variable"):
        code, _, errors = await _rmq(["produce", *place, "--credentials", str(file)], lines)
        expect("exit code", (code, errors.count("error")), (0, 0))
        consume = ["consume", *place, "--group", GROUP, "--from", "earliest"]
        code, output, _ = await _rmq(consume, "", RMQ_CREDENTIALS=str(file))
        expect("exit code", code, 0)
        expect_true("both lines", set(lines.splitlines()) <= set(output.splitlines()))
    with operations.operation(PART, "rmq produce without an account says what to do"):
        code, _, errors = await _rmq(["produce", *place], lines)
        expect("exit code", code, 1)
        expect_in("hint: the request was not signed", errors)


async def _rmq(arguments: list[str], text: str, **environment: str) -> tuple[int, str, str]:
    """Run a command of rmq to its end; return its exit code, and what it printed and reported."""
    with trio.fail_after(COMMAND_S):
        done = await trio.run_process(
            [sys.executable, "-m", "rmq", *arguments],
            stdin=text.encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
    return done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace")


REFUSED: Final[dict[str, str]] = {
    "nobody's request is refused": "No accessKey is configured",
    "a stranger's request is refused": "No acl config for",
    "a wrong signature is refused": "Check signature failed",
    "a topic without permission is refused": "No default permission for",
    "what is for administrators is refused": "Need admin permission",
}


async def _refused(operations: Operations, cluster: Cluster) -> None:
    who = {
        "nobody's request is refused": (None, TOPIC),
        "a stranger's request is refused": (STRANGER, TOPIC),
        "a wrong signature is refused": (FORGER, TOPIC),
        "a topic without permission is refused": (USER, FORBIDDEN),
    }
    for name, (credentials, topic) in who.items():
        with operations.operation(PART, name):
            async with open_producer(_config(cluster, credentials), "py-refused") as producer:
                reason = await _refusal(producer.send(ours(Outgoing(topic, b"no"))))
                expect_in(REFUSED[name], reason)
    with operations.operation(PART, "what is for administrators is refused"):
        async with open_admin(_config(cluster, USER)) as admin:
            reason = await _refusal(admin.create_topic("PyNever"))
            expect_in(REFUSED["what is for administrators is refused"], reason)


async def _refusal(request: Awaitable[object]) -> str:
    """Return why a request was refused, as it must be."""
    try:
        await request
    except RmqError as exc:
        return str(exc)
    expect_true("a refusal", condition=False)
    return ""
