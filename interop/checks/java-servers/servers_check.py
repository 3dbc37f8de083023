"""Our remoting client against the stock nameserver and broker of RocketMQ 4.9.7.

Every answer is read with our header and body classes, which must know every field of it and write
it again as it came. Afterwards the stock broker and our server are given the same bad input, and
what they do is compared.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from admin_cases import run_admin_cases
from asking import Asker
from bad_input import compare_bad_input
from broker_session import BrokerSession, Consumer
from message_cases import run_message_cases
from nameserver_cases import run_nameserver_cases
from stock_servers import BROKER, stock_servers

from interop.support.cases import expect, expect_true, say
from interop.support.certificates import Authority
from interop.support.check import run_check
from interop.support.java import fetch_jars, need_java_tools
from interop.support.waiting import wait_until
from rmq.errors import ConnectFailedError
from rmq.remoting.bodies import ClusterInfo
from rmq.remoting.client import ClientConfig, open_client
from rmq.remoting.codes import RequestCode, Serialization
from rmq.remoting.tls_config import TlsClientConfig, client_context

if TYPE_CHECKING:
    from stock_servers import StockServers

    from interop.support.cases import CaseTable

HERE: Final = Path(__file__).resolve().parent
TIMEOUT_S: Final = 240
REGISTRATION_TIMEOUT_S: Final = 30


async def main(table: CaseTable, folder: Path) -> None:
    await need_java_tools()
    jars = await fetch_jars(HERE / "pom.xml")
    ours = Authority(folder, "ours")
    server = ours.issue("server")
    tls = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(server.cert),
        "tls.server.keyPath": str(server.key),
        "tls.server.trustCertPath": str(ours.trust),
        "tls.server.authClient": "true",
        "tls.server.need.client.auth": "optional",
    }
    say("starting the stock nameserver and broker ...")
    async with stock_servers(jars, folder, tls) as servers:
        await wait_registered(servers)
        for serialization in Serialization:
            say(f"asking with {serialization.name} headers ...")
            await run_with(table, servers, serialization)
        await run_tls(table, servers, ours, Authority(folder, "strangers"))
        say("comparing what both do with bad input ...\n")
        await compare_bad_input(table, servers.broker)


async def wait_registered(servers: StockServers) -> None:
    """A broker registers some time after it has opened its port."""
    async with open_client() as client:
        asker = Asker(client, servers.nameserver)

        async def registered() -> bool:
            info = await asker.body(ClusterInfo, RequestCode.GET_BROKER_CLUSTER_INFO)
            return BROKER in info.broker_addr_table

        await wait_until("the broker to register", registered, timeout_s=REGISTRATION_TIMEOUT_S)


async def run_with(table: CaseTable, servers: StockServers, serialization: Serialization) -> None:
    consumer = Consumer()
    config = ClientConfig(serialization=serialization)
    async with open_client(config, table=consumer.table()) as client:
        await run_nameserver_cases(
            table,
            f"nameserver, {serialization.name}",
            client,
            servers.nameserver,
            servers.broker,
        )
        session = BrokerSession(client, consumer, servers)
        await run_message_cases(table, session)
        await run_admin_cases(table, session)


async def run_tls(
    table: CaseTable, servers: StockServers, ours: Authority, strangers: Authority
) -> None:
    part = "TLS"
    client_cert, stranger_cert = ours.issue("client"), strangers.issue("client")
    admitted = {
        "server not checked": TlsClientConfig(),
        "server checked": TlsClientConfig(auth_server=True, trust_cert_path=ours.trust),
        "server and host name checked": TlsClientConfig(
            auth_server=True, check_hostname=True, trust_cert_path=ours.trust
        ),
        "mutual": TlsClientConfig(
            auth_server=True,
            trust_cert_path=ours.trust,
            cert_path=client_cert.cert,
            key_path=client_cert.key,
        ),
    }
    for name, config in admitted.items():
        for peer, address in (("nameserver", servers.nameserver), ("broker", servers.broker)):
            with table.case(part, f"{peer}, {name}"):
                async with open_client(tls_context=client_context(config)) as client:
                    code = RequestCode.GET_BROKER_RUNTIME_INFO
                    if peer == "nameserver":
                        code = RequestCode.GET_BROKER_CLUSTER_INFO
                    await Asker(client, address).ask(code)
                    channel = client.open_channel_to(address)
                    expect_true("an encrypted connection", channel and channel.secure)

    with table.case(part, "server of a stranger is not trusted") as case:
        config = TlsClientConfig(auth_server=True, trust_cert_path=strangers.trust)
        async with open_client(tls_context=client_context(config)) as client:
            try:
                await Asker(client, servers.broker).ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            except ConnectFailedError as exc:
                case.note(exc.reason)
            else:
                expect("outcome", "answered", "no connection")

    with table.case(part, "our certificate of a stranger is refused") as case:
        config = TlsClientConfig(
            auth_server=True,
            trust_cert_path=ours.trust,
            cert_path=stranger_cert.cert,
            key_path=stranger_cert.key,
        )
        async with open_client(tls_context=client_context(config)) as client:
            started = trio.current_time()
            try:
                await Asker(client, servers.broker).ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            except Exception as exc:  # noqa: BLE001 - which of them depends on who is faster
                case.note(f"{type(exc).__name__}: {exc}")
                expect_true("to learn of it at once", trio.current_time() - started < 2)
            else:
                expect("outcome", "answered", "refused")


if __name__ == "__main__":
    sys.exit(run_check(main, timeout_s=TIMEOUT_S))
