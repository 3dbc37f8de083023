"""Replication over TLS: who must encrypt, who must prove who it is, and that the log arrives."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.lowlevel
import trustme

from rmq.errors import ConfigError
from rmq.ha.protocol.pending_acks import AckOutcome
from rmq.ha.protocol.wire import REPORT, TRANSFER
from rmq.ha.store_log import LogReader, ReadAhead
from rmq.ha.tls_channel import client_context_of, server_context_of
from rmq.remoting.tls_config import ClientAuth, TlsClientConfig, TlsServerConfig
from tests.ha.protocol.kit_master import (
    HOST,
    KIB,
    MIB,
    MemoryLog,
    NativePeer,
    dialled,
    serving,
    settled,
    stranger,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from tests.ha.protocol.kit_master import Serving


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Path:
    """Return a folder with certificates of a master (server) and of a slave (client)."""
    for name in ("server", "client"):
        put_certificate(tmp_path, name, authority)
    (tmp_path / "trust.pem").write_bytes(authority.cert_pem.bytes())
    return tmp_path


def put_certificate(folder: Path, name: str, authority: trustme.CA) -> None:
    leaf = authority.issue_cert(HOST)
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    (folder / f"{name}.pem").write_bytes(chain)
    (folder / f"{name}.key").write_bytes(leaf.private_key_pem.bytes())


def server_config(files: Path, *, is_mutual: bool = False) -> TlsServerConfig:
    return TlsServerConfig(
        cert_path=files / "server.pem",
        key_path=files / "server.key",
        client_auth=ClientAuth.REQUIRE if is_mutual else ClientAuth.NONE,
        trust_cert_path=files / "trust.pem" if is_mutual else None,
    )


def client_config(files: Path, *, has_certificate: bool = False) -> TlsClientConfig:
    return TlsClientConfig(
        auth_server=True,
        check_hostname=True,
        trust_cert_path=files / "trust.pem",
        cert_path=files / "client.pem" if has_certificate else None,
        key_path=files / "client.key" if has_certificate else None,
    )


def tls_serving(
    files: Path,
    *,
    mode: str = "enforcing",
    is_mutual: bool = False,
    **arguments: Any,  # noqa: ANN401 - passed on
) -> Any:  # noqa: ANN401 - what `serving` returns
    return serving(
        files / "store",
        tls_context=server_context_of(mode, server_config(files, is_mutual=is_mutual)),
        tls_required=mode == "enforcing",
        **arguments,
    )


@asynccontextmanager
async def encrypted(run: Serving, config: TlsClientConfig) -> AsyncIterator[trio.SSLStream[Any]]:
    """Dial a master as a slave of these settings does."""
    context = client_context_of("enforcing", config)
    assert context is not None
    stream = trio.SSLStream(
        await trio.open_tcp_stream(HOST, run.port), context, server_hostname=HOST
    )
    try:
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


async def follow(stream: trio.SSLStream[Any], slave: NativePeer, stop: int) -> None:
    """Let a slave talk until its log has come to `stop`."""
    if output := slave.link.take_output():
        await stream.send_all(output)
    while slave.log.end < stop:
        data = bytes(await stream.receive_some(MIB))
        if output := slave.hear(data):
            await stream.send_all(output)


async def ask(stream: trio.SSLStream[Any]) -> None:
    """Say something and wait for an answer: in TLS 1.3 a client that is refused hears it then."""
    await stream.send_all(REPORT.pack(0))
    await stream.receive_some(1)


async def read_exactly(stream: trio.SSLStream[Any], size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = await stream.receive_some(size - len(data))
        assert piece
        data += piece
    return bytes(data)


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_the_log_arrives_encrypted(files: Path, mode: str) -> None:
    async with (
        tls_serving(files, mode=mode, messages=2000) as run,
        encrypted(run, client_config(files)) as stream,
    ):
        slave = NativePeer(MemoryLog(run.log.segment_bytes))
        await follow(stream, slave, run.log.end)
        assert slave.log.data == run.bytes_of_log()
        for size in (1, 100 * KIB // 2, 1000):
            await follow(stream, slave, run.put(size=size))
        assert slave.log.data == run.bytes_of_log()
        assert run.only_link.is_secure
        assert run.only_link.sent_bytes == run.log.end


async def test_a_stock_dialect_over_tls_is_served_too(files: Path) -> None:
    async with (
        tls_serving(files, messages=5) as run,
        encrypted(run, client_config(files)) as stream,
    ):
        await stream.send_all(REPORT.pack(0))
        header = await read_exactly(stream, TRANSFER.size)
        assert header == TRANSFER.pack(0, run.log.end)
        assert await read_exactly(stream, run.log.end) == run.bytes_of_log()


async def test_an_acknowledgement_over_tls_answers_a_send(files: Path) -> None:
    async with (
        tls_serving(files, messages=5) as run,
        encrypted(run, client_config(files)) as stream,
    ):
        slave = NativePeer(MemoryLog(run.log.segment_bytes))
        await follow(stream, slave, run.log.end)
        while not run.master.slaves.in_sync_count:
            await trio.lowlevel.checkpoint()
        answer = run.ask(run.put())
        assert answer == []
        await follow(stream, slave, run.log.end)
        while not answer:
            await trio.lowlevel.checkpoint()
        assert answer == [AckOutcome.REPLICATED]


async def test_plain_slaves_are_served_where_tls_is_a_choice(files: Path) -> None:
    async with tls_serving(files, mode="permissive", messages=5) as run:
        with dialled(run) as peer:
            slave = NativePeer(MemoryLog(run.log.segment_bytes))
            await slave.follow(peer, run.log.end)
            assert not run.only_link.is_secure


async def test_plain_slaves_are_refused_where_tls_is_required(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_serving(files, messages=5) as run:
        with stranger(run) as peer:
            await peer.say(REPORT.pack(0))
            assert await peer.wait_closed() == b""
        assert run.master.counters.refused == 1
    assert "it speaks plain, and TLS is required (haTlsMode)" in caplog.text


async def test_a_slave_with_a_certificate_is_served_where_one_is_needed(files: Path) -> None:
    async with (
        tls_serving(files, is_mutual=True, messages=5) as run,
        encrypted(run, client_config(files, has_certificate=True)) as stream,
    ):
        slave = NativePeer(MemoryLog(run.log.segment_bytes))
        await follow(stream, slave, run.log.end)
        assert slave.log.data == run.bytes_of_log()


async def test_a_slave_without_a_certificate_is_refused_where_one_is_needed(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_serving(files, is_mutual=True, messages=5) as run:
        async with encrypted(run, client_config(files)) as stream:
            with pytest.raises(trio.BrokenResourceError):
                await ask(stream)
        assert run.master.counters.refused == 1
        assert run.server.statistics() == []
    assert "the TLS handshake failed" in caplog.text


async def test_a_slave_of_another_authority_is_refused(files: Path) -> None:
    put_certificate(files, "client", trustme.CA())
    async with tls_serving(files, is_mutual=True, messages=5) as run:
        async with encrypted(run, client_config(files, has_certificate=True)) as stream:
            with pytest.raises(trio.BrokenResourceError):
                await ask(stream)
        assert run.master.counters.refused == 1


async def test_a_slave_that_differs_is_told_why_over_tls(files: Path) -> None:
    async with (
        tls_serving(files, messages=30) as run,
        encrypted(run, client_config(files)) as stream,
    ):
        slave = NativePeer(MemoryLog(run.log.segment_bytes, bytes(run.log.end)))
        await stream.send_all(slave.link.take_output())
        while slave.link.ending is None:
            if output := slave.hear(bytes(await stream.receive_some(MIB))):
                await stream.send_all(output)
        assert slave.link.ending.kind.name == "DIVERGED"


async def test_garbage_that_begins_like_tls_is_refused(files: Path) -> None:
    async with tls_serving(files, messages=5) as run:
        with stranger(run) as peer:
            await peer.say(b"\x16\x03\x01\x00\x05garbage garbage")
            await peer.wait_closed()
        assert run.master.counters.refused == 1


async def test_a_tls_handshake_that_does_not_end_is_cut_off(
    files: Path, mock_clock: MockClock
) -> None:
    async with tls_serving(files, messages=5) as run:
        with stranger(run) as peer:
            await peer.say(b"\x16\x03\x01\x02\x00")
            mock_clock.jump(10.1)
            await settled()
            await peer.wait_closed()
            assert run.master.counters.refused == 1


async def test_a_slave_that_reads_nothing_over_tls_does_not_hold_others_up(files: Path) -> None:
    async with (
        tls_serving(files, store={"segment_bytes": 8 * MIB}) as run,
        encrypted(run, client_config(files)) as stuck,
        encrypted(run, client_config(files)) as stream,
    ):
        await stuck.send_all(REPORT.pack(0))
        slave = NativePeer(MemoryLog(run.log.segment_bytes))
        for _ in range(20):
            await follow(stream, slave, run.put(size=MIB))
        assert slave.log.data == run.bytes_of_log()
        statuses = {status.is_native: status for status in run.server.statistics()}
        assert statuses[False].is_blocked


async def test_a_cold_log_is_read_in_a_thread_before_it_is_encrypted(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogReader, "_is_warm", lambda *_: False)
    async with (
        tls_serving(files, messages=2000) as run,
        encrypted(run, client_config(files)) as stream,
    ):
        slave = NativePeer(MemoryLog(run.log.segment_bytes))
        await follow(stream, slave, run.log.end)
        assert slave.log.data == run.bytes_of_log()


async def test_bytes_that_expire_while_they_are_read_end_the_link(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogReader, "_is_warm", lambda *_: False)
    async with (
        tls_serving(files, messages=2000) as run,
        encrypted(run, client_config(files)) as stream,
    ):
        drop = run.store.log.segments.drop_first
        monkeypatch.setattr(ReadAhead, "run", lambda _: trio.from_thread.run_sync(drop))
        slave = NativePeer(MemoryLog(run.log.segment_bytes))
        await stream.send_all(slave.link.take_output())
        with pytest.raises(trio.BrokenResourceError):
            await follow(stream, slave, run.log.end)
        assert run.only_link.why == "its bytes at 0 have expired"


async def test_certificates_that_change_are_used_by_the_next_slave(
    files: Path, authority: trustme.CA
) -> None:
    async with tls_serving(files, messages=5) as run:
        serials = []
        for _ in range(2):
            async with encrypted(run, client_config(files)) as stream:
                await stream.do_handshake()
                certificate = stream.getpeercert()
                serials.append(certificate["serialNumber"])
            put_certificate(files, "server", authority)
        assert serials[0] != serials[1]


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_tls_needs_a_certificate(mode: str) -> None:
    for config in (None, TlsServerConfig()):
        with pytest.raises(ConfigError, match="needs a certificate") as caught:
            server_context_of(mode, config)
        assert caught.value.hint is not None


def test_without_tls_there_are_no_contexts(files: Path) -> None:
    assert server_context_of("disabled", server_config(files)) is None
    assert client_context_of("disabled", client_config(files)) is None


def test_a_slave_without_settings_encrypts_and_checks_nothing() -> None:
    context = client_context_of("permissive", None)
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE
