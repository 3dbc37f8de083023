"""A nameserver and masters as processes, for clients that have no loop to share.

with process_cluster(tmp_path) as it:
    it.create_topic("Orders", queues=4)
    with BlockingClient(it.nameserver) as client:
        ...
    it.kill("broker-a")       # SIGKILL
    it.start("broker-a")      # the same store and port again
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rmq
from rmq.client.blocking.client import BlockingClient
from rmq.client.core.config import ClientConfig
from rmq.client.core.flows import ask
from rmq.errors import NoRouteError
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import CreateTopicRequest
from tests.broker.broker_kit import NEVER_FULL
from tests.ha.pair_kit import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.remoting.tls_config import TlsClientConfig

WAIT_S: Final = 30.0
"""How long a process may take to start or stop, and a route to be known."""
_READY: Final = b"boot success"

# Large enough for a benchmark, small enough to be made quickly.
_STORE: Final = {
    "mappedFileSizeCommitLog": str(16 * 1024**2),
    "mappedFileSizeConsumeQueue": str(20_000 * 20),
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
}


class ProcessCluster:
    """What runs, by name."""

    def __init__(self, root: Path, tls: TlsClientConfig | None = None) -> None:
        self.root = root
        self._tls = tls
        self._port = free_port()
        self._ports: dict[str, int] = {}
        self._settings: dict[str, dict[str, str]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def nameserver(self) -> str:
        return f"127.0.0.1:{self._port}"

    def _client(self) -> BlockingClient:
        return BlockingClient(ClientConfig(nameservers=self.nameserver, tls=self._tls))

    def address(self, name: str = "broker-a") -> str:
        return f"127.0.0.1:{self._ports[name]}"

    # --- processes ---------------------------------------------------------------------------

    def start_nameserver(self, *, cert: str = "", key: str = "") -> None:
        """Start the nameserver, with TLS if there is a certificate."""
        conf = self.root / "namesrv.conf"
        wanted = {
            "bindAddress": "127.0.0.1",
            "listenPort": str(self._port),
            "metricsPort": "0",
            "kvConfigPath": str(self.root / "kvConfig.json"),
        }
        if cert:
            wanted |= {"tls.server.certPath": cert, "tls.server.keyPath": key}
        if self._tls is not None:
            wanted |= {"tls.server.mode": "enforcing"}
        conf.write_text("".join(f"{name}={value}\n" for name, value in wanted.items()))
        self._run("namesrv", "rmq", "namesrv", "-c", str(conf))

    def start(self, name: str = "broker-a", **settings: str) -> None:
        """Start a master, or start it again as it was; returns when clients can find it."""
        port = self._ports.setdefault(name, free_port())
        kept = self._settings.setdefault(name, {})
        kept.update(settings)
        wanted = {
            **_STORE,
            **NEVER_FULL,
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "brokerName": name,
            "brokerClusterName": "DefaultCluster",
            "listenPort": str(port),
            "metricsPort": "0",
            "namesrvAddr": self.nameserver,
            "storePathRootDir": str(self.root / name / "store"),
            "shutdownDrainTime": "100",
            **kept,
        }
        conf = self.root / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in wanted.items()))
        self._run(name, "rmq", "broker", "-c", str(conf))
        self._wait_for_route(name, self.address(name))

    def _run(self, name: str, module: str, *arguments: str) -> None:
        with (self.root / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.root,
                env={**os.environ, "PYTHONPATH": str(Path(rmq.__file__).parents[1])},
            )
        self._processes[name] = process
        assert process.stdout is not None
        deadline = time.monotonic() + WAIT_S
        said = b""
        # Not `select`: it knows no descriptor above 1023.
        output = select.poll()
        output.register(process.stdout, select.POLLIN)
        while _READY not in said:
            left_s = deadline - time.monotonic()
            readable = output.poll(max(0.0, left_s) * 1000)
            chunk = os.read(process.stdout.fileno(), 4096) if readable else b""
            assert chunk, f"{name} did not start: {said.decode()!r}, see {self.root / name}.log"
            said += chunk

    def kill(self, name: str = "broker-a") -> None:
        """End a process at once, without a word to anybody."""
        self._end(name, is_killed=True)

    def stop(self, name: str = "broker-a") -> None:
        """End a process in good order."""
        self._end(name, is_killed=False)

    def _end(self, name: str, *, is_killed: bool) -> None:
        process = self._processes.pop(name)
        if is_killed:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            assert process.stdout is not None
            process.stdout.close()

    def stop_all(self) -> None:
        # The nameserver last: brokers say good-bye to it.
        for name in sorted(self._processes, key=lambda name: name == "namesrv"):
            self.kill(name)

    # --- what tests need -----------------------------------------------------------------------

    def create_topic(
        self, topic: str, *, queues: int = 4, broker: str = "broker-a", perm: int = 6
    ) -> None:
        """Create a topic, and wait until the nameserver knows it."""
        header = CreateTopicRequest(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
        )
        with self._client() as client:
            client.run(ask(self.address(broker), RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        self._wait_for_route(topic, self.address(broker))

    def wait_for_route(self, topic: str, broker: str = "broker-a") -> None:
        """Wait until the nameserver knows of a topic at a broker. Brokers' names are topics."""
        self._wait_for_route(topic, self.address(broker))

    def _wait_for_route(self, topic: str, address: str) -> None:
        deadline = time.monotonic() + WAIT_S
        with self._client() as client:
            while True:
                try:
                    route = client.refresh_route(topic)
                    if any(broker.address == address for broker in route.brokers):
                        return
                except NoRouteError:
                    pass
                assert time.monotonic() < deadline, f"nobody knows {topic} at {address}"
                client.connections.sleep(0.02)


@contextmanager
def process_cluster(
    root: Path,
    brokers: tuple[str, ...] = ("broker-a",),
    *,
    cert: str = "",
    key: str = "",
    tls: TlsClientConfig | None = None,
    **settings: str,
) -> Iterator[ProcessCluster]:
    """Run a nameserver and some masters for the length of a block.

    With a certificate they speak TLS, and with `tls`, which says how to reach them, nothing else.
    """
    if cert:
        settings = {"tls.server.certPath": cert, "tls.server.keyPath": key, **settings}
    if tls is not None:
        trust = str(tls.trust_cert_path)
        settings = {
            "tls.server.mode": "enforcing",
            "useTLS": "true",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": trust,
            **settings,
        }
    it = ProcessCluster(root, tls)
    try:
        it.start_nameserver(cert=cert, key=key)
        for name in brokers:
            it.start(name, **settings)
        yield it
    finally:
        it.stop_all()
