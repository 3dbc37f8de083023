"""Stock mqadmin with `tools.yml`: as an administrator, without admin rights, unsigned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.checks.access.access_session import (
    ADMIN,
    BAD_SIGNATURE,
    FORGER,
    NO_ACCOUNT,
    NO_ADMIN,
    NO_KEY,
    OPEN,
    RELOAD_S,
    USER,
    keys,
    refusal,
)
from interop.support.cases import expect_true
from interop.support.cluster import CLUSTER
from interop.support.expectations import expect_sent
from interop.support.java_client import StockClientError
from interop.support.java_messages import Outgoing
from interop.support.mqadmin import expect_in
from interop.support.waiting import wait_until
from rmq.remoting.signing import Credentials

if TYPE_CHECKING:
    from interop.checks.access.access_session import AccessSession
    from interop.support.java_client import Driver
    from interop.support.mqadmin import Mqadmin

PART: Final = "mqadmin"

MADE: Final = Credentials(access_key="madeByMqadmin", secret_key="madeByMqadminSecret")
"""An account that exists only from its creation to its deletion by mqadmin."""


async def run_mqadmin_cases(session: AccessSession, driver: Driver) -> None:
    at_broker = ("-b", session.broker.address)
    async with session.mqadmin(ADMIN) as admin:
        with session.operation(
            PART, "clusterAclConfigVersion: the files, and how often they changed"
        ):
            first = await _versions(admin)
            expect_in(str(session.accounts_file), first)
        await _account(session, driver, admin, at_broker)
        with session.operation(
            PART, "updateGlobalWhiteAddr lets in what is unsigned, and ends that"
        ):
            await _global_white_list(session, driver, admin, at_broker)
        with session.operation(PART, "clusterAclConfigVersion: every change counts"):
            expect_true("another version", await _versions(admin) != first)
        with session.operation(PART, "an administrator's other commands"):
            await admin.run("updateTopic", *at_broker, "-t", "AclMade", "-r", "1", "-w", "1")
            await admin.run("updateSubGroup", *at_broker, "-g", "acl-made")
            await admin.run(
                "updateBrokerConfig", *at_broker, "-k", "longPollingEnable", "-v", "true"
            )
            await admin.run("deleteTopic", "-c", CLUSTER, "-t", "AclMade")
            await admin.run("brokerStatus", *at_broker)
            await admin.run("getBrokerConfig", *at_broker)
    await _not_admin(session, at_broker)


async def _account(
    session: AccessSession, driver: Driver, admin: Mqadmin, at_broker: tuple[str, str]
) -> None:
    made = ("-a", MADE.access_key)
    secret = ("-s", MADE.secret_key)
    with session.operation(PART, "updateAclConfig: a new account may do what it says, at once"):
        output = await admin.run(
            "updateAclConfig",
            *at_broker,
            *made,
            *(*secret, "-t", f"{OPEN}=PUB", "-m", "false", "-w", "192.168.9.9"),
        )
        expect_in("create or update plain access config", output)
        async with driver.producer("made", **keys(MADE)) as producer:
            expect_sent(await producer.send(Outgoing(OPEN, b"by a new account")))

    with session.operation(PART, "updateAclConfig: a change of permissions counts at once"):
        await admin.run("updateAclConfig", *at_broker, *made, *secret, "-t", f"{OPEN}=DENY")
        async with driver.producer("denied", **keys(MADE)) as producer:
            await refusal(producer.send(Outgoing(OPEN, b"no")))

    with session.operation(PART, "updateAclConfig refuses a short secret key"):
        await admin.refused("updateAclConfig", *at_broker, "-a", "shortOne", "-s", "123")

    with session.operation(PART, "deleteAclConfig: the account is gone at once"):
        output = await admin.run("deleteAclConfig", *at_broker, *made)
        expect_in("delete plain access config account", output)
        async with driver.producer("deleted", **keys(MADE)) as producer:
            expect_in(NO_ACCOUNT, await refusal(producer.send(Outgoing(OPEN, b"no"))))


async def _global_white_list(
    session: AccessSession, driver: Driver, admin: Mqadmin, at_broker: tuple[str, str]
) -> None:
    file = ("-p", str(session.accounts_file))
    async with driver.producer("white") as producer:

        async def is_let_in() -> bool:
            try:
                expect_sent(await producer.send(Outgoing(OPEN, b"unsigned")))
            except StockClientError:
                return False
            return True

        async def is_refused() -> bool:
            return not await is_let_in()

        # A stock broker takes it from its file only, some seconds later.
        change = ("updateGlobalWhiteAddr", *at_broker, *file, "-g")
        await admin.run(*change, "10.10.10.10,127.0.0.1")
        await wait_until("the send to be taken", is_let_in, timeout_s=RELOAD_S)
        await admin.run(*change, "10.10.10.10")
        await wait_until("the send to be refused", is_refused, timeout_s=RELOAD_S)


async def _not_admin(session: AccessSession, at_broker: tuple[str, str]) -> None:
    topic = ("updateTopic", *at_broker, "-t", "AclNever")
    with session.operation(PART, "an account without admin rights reads, and changes nothing"):
        async with session.mqadmin(USER) as user:
            await user.run("brokerStatus", *at_broker)
            for command in (
                topic,
                ("updateSubGroup", *at_broker, "-g", "acl-never"),
                ("updateBrokerConfig", *at_broker, "-k", "longPollingEnable", "-v", "true"),
            ):
                expect_in(NO_ADMIN, await user.refused(*command))

    with session.operation(PART, "a wrong secret key in tools.yml, and no tools.yml"):
        async with session.mqadmin(FORGER) as forger:
            expect_in(BAD_SIGNATURE, await forger.refused(*topic))
        async with session.mqadmin(None) as nameless:
            expect_in(NO_KEY, await nameless.refused(*topic))
            expect_in(NO_KEY, await nameless.refused("brokerStatus", *at_broker))


async def _versions(admin: Mqadmin) -> str:
    return await admin.run("clusterAclConfigVersion", "-c", CLUSTER)
