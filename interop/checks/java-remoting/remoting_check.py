"""The stock remoting client of RocketMQ 4.9.8 (NettyRemotingClient) against our remoting server.

A small Java program (`java/interop`) runs suites of cases and prints how each went; this program
starts the servers they need, runs it once per suite and setting, and adds what only the server can
know. All of it happens on the loopback address, with ports the system chooses.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from answering_server import AnsweringServer
from tls_scenarios import ANSWERED, make_settings, merged

from interop.support.cases import Case, CaseTable, expect, expect_true, say
from interop.support.certificates import Authority
from interop.support.check import run_check
from interop.support.java import (
    JavaProgram,
    compile_java,
    fetch_jars,
    need_java_tools,
    running_java,
)
from interop.support.waiting import wait_until
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import VERSION, LanguageCode
from rmq.remoting.server import ServerConfig
from rmq.remoting.tls import TlsServer
from rmq.remoting.tls_config import ClientAuth, TlsMode, TlsServerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

HERE: Final = Path(__file__).resolve().parent
TIMEOUT_S: Final = 400
SUITE_TIMEOUT_S: Final = 60
IDLE_TIMEOUT_S: Final = 1.0

SERIALIZATIONS: Final = ("JSON", "ROCKETMQ")


async def main(table: CaseTable, folder: Path) -> None:
    await need_java_tools()
    jars = await fetch_jars(HERE / "pom.xml")
    say("compiling the Java cases ...")
    classes = folder / "classes"
    await compile_java(HERE / "java", jars, classes)
    suites = Suites(table, folder, [str(classes), f"{jars}/*"])
    for serialization in SERIALIZATIONS:
        await run_plain(suites, serialization)
    await run_closing(suites)
    await run_tls(suites, folder)
    await run_tls_scenarios(suites, folder)


@dataclass
class Suites:
    """Runs suites of the Java program and puts its cases into the table."""

    table: CaseTable
    folder: Path
    classpath: list[str]
    _runs: int = field(default=0, init=False)

    async def run(
        self,
        part: str,
        suite: str,
        server: AnsweringServer,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        say(f"{part}: {suite} ...")
        self._runs += 1
        output = self.folder / f"{self._runs}-{suite}.log"
        program = JavaProgram(
            main_class="interop.Main",
            arguments=(suite, server.address),
            classpath=self.classpath,
            home=self.folder,
            # A machine may have TLS settings for all its RocketMQ clients in this file.
            properties={"tls.config.file": str(self.folder / "none"), **(properties or {})},
        )
        lines: list[str] = []
        with trio.move_on_after(SUITE_TIMEOUT_S):
            async with running_java(program, log=output) as process:
                await process.wait()
        for line in output.read_text().splitlines():
            lines.append(line)
            if line.startswith("case\t"):
                _, result, ms, name, *detail = line.split("\t")
                passed = result == "pass"
                case = Case(part, name, " ".join(detail), passed, float(ms))
                self.table.add(case)
        if not lines or lines[-1] != "end":
            with self.table.case(part, f"suite {suite} comes to its end"):
                raise RuntimeError(" | ".join(lines[-5:]) or "no output")


@asynccontextmanager
async def serving(
    *, config: ServerConfig | None = None, tls: TlsServerConfig | None = None
) -> AsyncIterator[AnsweringServer]:
    async with trio.open_nursery() as nursery:
        answering = AnsweringServer(
            nursery,
            config or ServerConfig(host="127.0.0.1"),
            None if tls is None else TlsServer(tls),
        )
        await nursery.start(answering.server.run)
        yield answering
        nursery.cancel_scope.cancel()


async def run_plain(suites: Suites, serialization: str) -> None:
    properties = {"rocketmq.serialize.type": serialization}
    async with serving() as server:
        for suite in ("calls", "shapes", "callbacks"):
            await suites.run(serialization, suite, server, properties)
        with suites.table.case(serialization, "server: version and language of the client"):
            expect("seen", server.peers_seen, {(VERSION, LanguageCode.JAVA)})
        with suites.table.case(serialization, "server: every connection ended, none left") as case:
            await all_closed(server)
            case.note(f"{len(server.opened)} connections")
        with suites.table.case(serialization, "server: nothing left unanswered"):
            left = {group.name: group.unanswered for group in server.server.statistics().groups}
            expect("unanswered", {name: n for name, n in left.items() if n}, {})


async def run_closing(suites: Suites) -> None:
    idle_soon = ServerConfig(host="127.0.0.1", channel=ChannelConfig(idle_timeout_s=IDLE_TIMEOUT_S))
    async with serving(config=idle_soon) as server:
        await suites.run("closing", "closing", server)
        with suites.table.case("closing", "server: knows why each connection ended") as case:
            await all_closed(server)
            expect_true("a dropped one", "dropped on purpose" in server.closed)
            expect_true("an idle one", f"idle for {IDLE_TIMEOUT_S:g} s" in server.closed)
            case.note("; ".join(server.closed))
    async with serving() as server:
        await suites.run("closing", "stopping", server)


async def all_closed(server: AnsweringServer) -> None:
    async def none_left() -> bool:
        return not server.server.channels

    await wait_until("every connection to end", none_left)
    expect("connections ended", len(server.closed), len(server.opened))


# ---- TLS -----------------------------------------------------------------------------------------

# The stock default is a test mode that trusts everybody.
TRUST_ALL: Final = {"tls.enable": "true"}
PLAIN: Final[Mapping[str, str]] = {}


async def run_tls(suites: Suites, folder: Path) -> None:
    ours = Authority(folder, "ours")
    strangers = Authority(folder, "strangers")
    server = ours.issue("server")
    client = ours.issue("client")
    stranger = strangers.issue("client")

    checking = {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(ours.trust),
    }

    def showing(cert: Path, key: Path) -> dict[str, str]:
        return {**checking, "tls.client.certPath": str(cert), "tls.client.keyPath": str(key)}

    def config(mode: TlsMode, auth: ClientAuth = ClientAuth.NONE) -> TlsServerConfig:
        return TlsServerConfig(
            mode=mode,
            cert_path=server.cert,
            key_path=server.key,
            client_auth=auth,
            trust_cert_path=None if auth is ClientAuth.NONE else ours.trust,
        )

    async def admitted(part: str, tls: TlsServerConfig, properties: Mapping[str, str]) -> None:
        async with serving(tls=tls) as peer:
            await suites.run(part, "admitted", peer, properties)
            with suites.table.case(part, "server: connection encrypted or not, as it should"):
                secure = properties.get("tls.enable") == "true"
                expect("secure", [channel.secure for channel in peer.opened], [secure])

    async def turned_away(part: str, tls: TlsServerConfig, properties: Mapping[str, str]) -> None:
        async with serving(tls=tls) as peer:
            await suites.run(part, "turned-away", peer, properties)

    permissive, enforcing = config(TlsMode.PERMISSIVE), config(TlsMode.ENFORCING)
    mutual = config(TlsMode.ENFORCING, ClientAuth.REQUIRE)
    await admitted("permissive, client with TLS", permissive, checking)
    await admitted("permissive, client without", permissive, PLAIN)
    await admitted("enforcing, client with TLS", enforcing, checking)
    await admitted("enforcing, client in test mode", enforcing, TRUST_ALL)
    await admitted("mutual, client shows certificate", mutual, showing(client.cert, client.key))
    await admitted(
        "optional, client shows none", config(TlsMode.ENFORCING, ClientAuth.OPTIONAL), checking
    )
    await turned_away("enforcing, client without", enforcing, PLAIN)
    await turned_away("disabled, client with TLS", config(TlsMode.DISABLED), checking)
    await turned_away("mutual, client shows none", mutual, checking)
    await turned_away("mutual, client of a stranger", mutual, showing(stranger.cert, stranger.key))
    await turned_away(
        "client does not trust the server",
        enforcing,
        {**checking, "tls.client.trustCertPath": str(strangers.trust)},
    )

    # New certificates of another authority while the server runs.
    part = "certificates replaced"
    async with serving(tls=enforcing) as peer:
        await suites.run(f"{part}, before", "admitted", peer, checking)
        replacement = strangers.issue("server")
        shutil.copyfile(replacement.cert, server.cert)
        shutil.copyfile(replacement.key, server.key)
        trusting_new = {**checking, "tls.client.trustCertPath": str(strangers.trust)}
        await suites.run(f"{part}, new trust", "admitted", peer, trusting_new)
        await suites.run(f"{part}, old trust", "turned-away", peer, checking)


async def run_tls_scenarios(suites: Suites, folder: Path) -> None:
    """Run what RocketMQ's own class of TLS tests tries."""
    settings = make_settings(folder)
    for scenario in settings.scenarios:
        part = f"TlsTest {scenario.name}"
        tls = TlsServerConfig.from_properties(merged(settings.server, scenario.server))
        properties = merged(settings.client, scenario.client)
        if scenario.from_file:
            path = folder / "tls.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            # The one that is no part of the file, in 4.9.8 either.
            properties = {"tls.config.file": str(path), "tls.enable": "true"}
        async with serving(tls=tls) as peer:
            await suites.run(part, scenario.suite, peer, properties)

    part = "TlsTest reloadSslContextForServer"
    reloading = make_settings(folder)
    trusting = {"tls.client.authServer": "false"}
    config = merged(reloading.server, {"tls.server.need.client.auth": "none"})
    properties = merged(reloading.client, trusting)
    async with serving(tls=TlsServerConfig.from_properties(config)) as peer:
        await suites.run(f"{part}, before", ANSWERED, peer, properties)
        strangers = Authority(folder, "tls-renewed").issue("server")
        for name, renewed in (("certPath", strangers.cert), ("keyPath", strangers.key)):
            shutil.copyfile(renewed, config[f"tls.server.{name}"])
        await suites.run(f"{part}, after", ANSWERED, peer, properties)


if __name__ == "__main__":
    sys.exit(run_check(main, timeout_s=TIMEOUT_S))
