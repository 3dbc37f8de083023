"""Files of accounts that mqadmin has changed: what one broker writes, the other kind reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.checks.access.access_session import (
    ADMIN,
    BROKER_SETTINGS,
    OPEN,
    AccessSession,
    accounts,
    keys,
    place_of_accounts,
    refusal,
)
from interop.support.cluster import CLUSTER, Against, open_cluster
from interop.support.expectations import expect_sent
from interop.support.java_messages import Outgoing
from rmq.remoting.signing import Credentials

if TYPE_CHECKING:
    from pathlib import Path

    from interop.support.cluster import Cluster
    from interop.support.java_client import DriverKit
    from interop.support.results import Operations

PART: Final = "files"
SEND_MS: Final = 20_000
"""The first send of a client that has just started takes seconds on a busy machine."""
WRITTEN: Final = Credentials(access_key="writtenByTool", secret_key="012345678")
"""Its secret would be another number in a file that forgets the zero."""
DENIED: Final = Credentials(access_key="deniedByTool", secret_key="true-or-false")


def make_folders(folder: Path) -> None:
    for against in Against:
        for part in ("writes", "reads"):
            (folder / f"{against}-{part}").mkdir()


async def run_file_cases(operations: Operations, kit: DriverKit, folder: Path) -> None:
    make_folders(folder)
    for writer, reader in ((Against.STOCK, Against.RMQ), (Against.RMQ, Against.STOCK)):
        with operations.operation(
            PART, f"mqadmin at a broker of {writer}, then one of {reader}", timeout_s=150
        ):
            text = await _write(operations, kit, folder / f"{writer}-writes", writer)
            await _read(operations, kit, folder / f"{reader}-reads", reader, text)


async def _write(operations: Operations, kit: DriverKit, folder: Path, against: Against) -> str:
    """Have mqadmin change the accounts of a broker; return its file."""
    async with open_cluster(against, folder) as cluster:
        session = await _start(operations, kit, cluster, against, accounts())
        async with session.mqadmin(ADMIN) as admin:
            at_broker = ("-b", session.broker.address)
            await admin.run("updateTopic", *at_broker, "-t", OPEN)
            for account, permission in ((WRITTEN, "PUB|SUB"), (DENIED, "DENY")):
                await admin.run(
                    "updateAclConfig",
                    *at_broker,
                    *("-a", account.access_key, "-s", account.secret_key, "-m", "false"),
                    *("-t", f"{OPEN}={permission}", "-g", "acl-readers=SUB"),
                    *("-i", "DENY", "-u", "DENY", "-w", "192.168.1.*"),
                )
            file = ("-p", str(session.accounts_file))
            await admin.run("updateGlobalWhiteAddr", *at_broker, "-g", "10.1.2.3,10.9.*.*", *file)
        await _check(session)
        return session.accounts_file.read_text()


async def _read(
    operations: Operations, kit: DriverKit, folder: Path, against: Against, text: str
) -> None:
    async with open_cluster(against, folder) as cluster:
        session = await _start(operations, kit, cluster, against, text)
        async with session.mqadmin(ADMIN) as admin:
            await admin.run("updateTopic", "-b", session.broker.address, "-t", OPEN)
            await admin.run("clusterAclConfigVersion", "-c", CLUSTER)
        await _check(session)


async def _start(
    operations: Operations, kit: DriverKit, cluster: Cluster, against: Against, text: str
) -> AccessSession:
    await cluster.add_nameserver()
    broker = cluster.place_broker("broker-files")
    place_of_accounts(against, cluster.folder, broker).write_text(text)
    await cluster.start_broker(broker, BROKER_SETTINGS)
    return AccessSession(operations, against, cluster, broker, kit)


async def _check(session: AccessSession) -> None:
    """The accounts may do what mqadmin was told."""
    async with session.kit.driver(session.cluster.nameserver) as driver:
        async with driver.producer("written", sendTimeoutMs=SEND_MS, **keys(WRITTEN)) as producer:
            expect_sent(await producer.send(Outgoing(OPEN, b"written")))
        async with driver.producer("denied", sendTimeoutMs=SEND_MS, **keys(DENIED)) as producer:
            await refusal(producer.send(Outgoing(OPEN, b"no")))
