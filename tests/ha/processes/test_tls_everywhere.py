"""The profile "TLS everywhere" of docs/security.md, taken from the page and run as it is there.

Processes of their own: a nameserver, a master and its slave, and the commands of an operator. Only
addresses and folders are replaced.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest
import trio
import trustme
from cryptography import x509

from rmq.broker.config import load_broker_config
from rmq.errors import ClientError
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode
from rmq.remoting.tls_config import ClientAuth, TlsClientConfig, client_context
from tests.ha.processes.cluster import Cluster
from tests.ha.processes.load import wait_in_sync
from tests.ha.processes.pair import MASTER, QUICK, SLAVE
from tests.paths import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmq.remoting.client import RemotingClient

TLS_FOLDER: Final = "/etc/rmq/tls"
NAMESERVER: Final = "10.0.0.10:9876"
SLAVE_ADDRESS: Final = "10.0.0.12:10911"
COMMAND_S: Final = 60.0

_SECTION: Final = (DOCS / "security.md").read_text().split("## TLS everywhere")[1].split("\n## ")[0]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", _SECTION, re.DOTALL)


NAMESERVER_CONF, BROKER_CONF, CLIENT_AUTH = blocks("properties")
MAKE_AUTHORITY, MAKE_CERTIFICATE, COMMANDS = blocks("sh")


def settings_of(text: str, folder: Path) -> dict[str, str]:
    lines = text.replace(TLS_FOLDER, str(folder)).splitlines()
    return dict(line.split("=", 1) for line in lines)


def issue(authority: trustme.CA, folder: Path) -> None:
    """Write what the page says is on a host."""
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "server.pem"))
    (folder / "server.key").touch(0o600)
    issued.private_key_pem.write_to_path(str(folder / "server.key"))


@contextmanager
def running_profile(folder: Path, tls: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    with (folder / "namesrv.conf").open("a") as conf:
        for key, value in settings_of(NAMESERVER_CONF, tls).items():
            conf.write(f"{key}={value}\n")
    settings = {**QUICK, **settings_of(BROKER_CONF, tls)}
    cluster.add(MASTER, "SYNC_MASTER", 0, settings)
    cluster.add(SLAVE, "SLAVE", 1, settings)
    for name in (MASTER, SLAVE):
        (folder / f"{name}.conf").chmod(0o600)
    try:
        for process in (cluster.nameserver, *cluster.brokers.values()):
            process.start()
        yield cluster
    finally:
        cluster.stop()


async def run_command(line: str, cluster: Cluster, tls: Path) -> str:
    """Run a command of the page; return what it prints."""
    line = line.replace(TLS_FOLDER, str(tls)).replace(NAMESERVER, cluster.nameserver_address)
    line = line.replace(SLAVE_ADDRESS, cluster.addresses[SLAVE])
    line = re.sub(r"\brmq ", f"{shlex.quote(sys.executable)} -m rmq ", line)
    with trio.fail_after(COMMAND_S):
        done = await trio.run_process(
            ["sh", "-c", line], capture_stdout=True, capture_stderr=True, check=False
        )
    assert done.returncode == 0, f"{line}\n{done.stdout!r}\n{done.stderr!r}"
    return done.stdout.decode()


async def assert_refused(client: RemotingClient, address: str) -> None:
    with pytest.raises(ClientError):
        await client.request(address, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_s=20)


async def test_every_connection_of_the_documented_profile_is_encrypted(tmp_path: Path) -> None:
    tls, data = tmp_path / "tls", tmp_path / "data"
    for folder in (tls, data):
        os.mkdir(folder)  # noqa: PTH102 - a path's own call is not for coroutines
    issue(trustme.CA(), tls)
    trust = client_context(
        TlsClientConfig(auth_server=True, check_hostname=True, trust_cert_path=tls / "ca.pem")
    )
    produce, consume, status, promote = COMMANDS.splitlines()
    with running_profile(data, tls) as cluster:
        master, slave = cluster.addresses[MASTER], cluster.addresses[SLAVE]
        async with open_client(tls_context=trust) as client, open_client() as plain:
            await wait_in_sync(client, master)
            await run_command(produce, cluster, tls)
            consumed = await run_command(consume, cluster, tls)
            assert sorted(map(int, consumed.split())) == list(range(1, 101))
            shown = await run_command(status, cluster, tls)
            assert "in sync" in shown

            host, _, port = master.rpartition(":")
            for address in (
                cluster.nameserver_address,
                master,
                slave,
                f"{host}:{int(port) - 2}",
            ):
                await assert_refused(plain, address)
            assert await answer_of(cluster.ha_address(MASTER)) == b""

            await run_command(promote, cluster, tls)
            await wait_in_sync(client, slave)
            await run_command(produce, cluster, tls)
    for name in (MASTER, SLAVE):
        said = cluster.brokers[name].said().decode()
        assert "chmod" not in said, "a file of the profile is open to others"
        for path in (cluster.store_of(name), *cluster.store_of(name).rglob("*")):
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


async def answer_of(address: str) -> bytes:
    """Say what a stock slave says, without encryption; return what comes back."""
    host, _, port = address.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        with trio.fail_after(20):
            try:
                await stream.send_all(bytes(8))
                return bytes(await stream.receive_some())
            except trio.BrokenResourceError:
                return b""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
def test_the_documented_commands_make_certificates_that_carry_the_address(tmp_path: Path) -> None:
    for script in (MAKE_AUTHORITY, MAKE_CERTIFICATE):
        subprocess.run(["sh", "-e", "-c", script], cwd=tmp_path, check=True, capture_output=True)
    (authority,) = x509.load_pem_x509_certificates((tmp_path / "ca.pem").read_bytes())
    (server,) = x509.load_pem_x509_certificates((tmp_path / "server.pem").read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.11"]
    assert (tmp_path / "server.key").read_text().startswith("-----BEGIN PRIVATE KEY-----")
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_clients_with_certificates_only_is_a_setting_that_servers_take(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF + CLIENT_AUTH)
    server = load_broker_config(conf, {}, {"HOME": str(tmp_path)}).config.tls_server
    assert server is not None
    assert server.client_auth is ClientAuth.REQUIRE
