"""The requests of `rmq ha`: query the replication of brokers and change it.

Every failure names the broker and what was asked of it, with a hint where there is something to do.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from rmq.errors import (
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    RequestTimeoutError,
    ResponseError,
    access_hint,
)
from rmq.remoting.bodies import (
    ClusterInfo,
    HaDemoteBody,
    HaDigestsBody,
    HaPromoteBody,
    HaResyncBody,
    HaStatusBody,
    KVTable,
    format_properties,
)
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    HaDemoteRequest,
    HaDigestsRequest,
    HaForgetRequest,
    HaPromoteRequest,
    HaRecordsRequest,
    HaRecordsResponse,
    HaResyncRequest,
)
from rmq.remoting.tls_config import client_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from rmq.remoting.bodies import Body
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header
    from rmq.remoting.signing import Credentials
    from rmq.remoting.tls_config import TlsClientConfig

B = TypeVar("B", bound="Body")

CHANGE_S: Final = 120.0
"""A change of roles may have to read the end of a log, or wait until a slave has all of it."""
DIGESTS_S: Final = 60.0

_CONNECT_HINT: Final = (
    "check that the broker runs and that this is its listenPort, not the port for slaves above it"
)


class StockBrokerError(ResponseError):
    """The broker is not of rmq: it does not know this request."""

    hint = (
        "only brokers of rmq know this request; ask one of those of the same name, or see"
        " `mqadmin brokerStatus`"
    )

    def __init__(self, peer: str, what: str) -> None:
        super().__init__(peer, what, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, None)
        self.args = (f"the broker at {peer} does not know {what}: it is not of rmq",)


class BrokerRefusedError(ClientError):
    """The broker refused the request."""

    def __init__(self, peer: str, what: str, code: int, remark: str | None) -> None:
        super().__init__(peer, f"{peer} refused {what}: {remark or f'code {code}'}")
        self.code = code


class NotAllowedError(BrokerRefusedError):
    """Access control refused the request."""

    def __init__(self, peer: str, what: str, code: int, remark: str | None) -> None:
        super().__init__(peer, what, code, remark)
        self.hint = access_hint(remark)


class HaClient:
    """Calls brokers and nameservers by address. Use `open_ha_client` to get one."""

    def __init__(self, client: RemotingClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    # --- reading -----------------------------------------------------------------------------

    async def status(self, broker: str) -> HaStatusBody:
        """Ask a broker for its replication status."""
        return await self._ask(HaStatusBody, broker, RequestCode.HA_STATUS)

    async def digests(self, broker: str, start: int, stop: int, step: int) -> HaDigestsBody:
        """Ask for digests of a range of the log; the answer may cover less of it."""
        header = HaDigestsRequest(start=start, stop=stop, step=step)
        return await self._ask(
            HaDigestsBody, broker, RequestCode.HA_DIGESTS, header, max(self._timeout_s, DIGESTS_S)
        )

    async def records(self, broker: str, start: int, stop: int) -> tuple[bytes, int]:
        """Ask for whole records of the log; return them, and where the next one begins."""
        header = HaRecordsRequest(start=start, stop=stop)
        answer = await self._call(
            broker, RequestCode.HA_RECORDS, header, timeout_s=max(self._timeout_s, DIGESTS_S)
        )
        return bytes(answer.body or b""), answer.header(HaRecordsResponse).next_offset

    async def log_end_of_stock(self, broker: str) -> int | None:
        """Ask a broker that is not of rmq where its log ends."""
        info = await self._ask(KVTable, broker, RequestCode.GET_BROKER_RUNTIME_INFO)
        text = info.table.get("commitLogMaxOffset", "")
        return int(text) if text.isascii() and text.isdecimal() else None

    async def cluster(self, nameservers: Sequence[str]) -> ClusterInfo:
        """Ask the first nameserver that answers which brokers there are."""
        failures: list[ClientError] = []
        for nameserver in nameservers:
            try:
                return await self._ask(ClusterInfo, nameserver, RequestCode.GET_BROKER_CLUSTER_INFO)
            except NotAllowedError as exc:
                failures.append(exc)
            except ClientError as exc:
                exc.hint = "check that the nameserver runs, and its address (-n or $NAMESRV_ADDR)"
                failures.append(exc)
        raise failures[0]

    # --- changing ----------------------------------------------------------------------------

    async def configure(self, broker: str, settings: Mapping[str, str]) -> str | None:
        """Change settings of a running broker; return its remark."""
        answer = await self._call(
            broker, RequestCode.UPDATE_BROKER_CONFIG, body=format_properties(settings)
        )
        return answer.remark

    async def promote(self, broker: str, *, accept_loss: bool, mode: str | None) -> HaPromoteBody:
        """Make a slave the master."""
        header = HaPromoteRequest(accept_loss=accept_loss, mode=mode)
        return await self._ask(HaPromoteBody, broker, RequestCode.HA_PROMOTE, header, CHANGE_S)

    async def demote(
        self, broker: str, ha_master_address: str | None, *, force: bool = False
    ) -> HaDemoteBody:
        """Make a master a slave."""
        header = HaDemoteRequest(ha_master_address=ha_master_address, force=force)
        return await self._ask(HaDemoteBody, broker, RequestCode.HA_DEMOTE, header, CHANGE_S)

    async def forget(self, broker: str, slave: str) -> HaStatusBody:
        """Make a master forget a slave that was taken out for good."""
        header = HaForgetRequest(slave=slave)
        return await self._ask(HaStatusBody, broker, RequestCode.HA_FORGET, header)

    async def resync(
        self, broker: str, *, dry_run: bool, planned: HaResyncBody | None = None
    ) -> HaResyncBody:
        """Make a slave cut off what its master does not have, or only report what that is.

        With `planned` it is refused if it is no longer what was reported.
        """
        header = HaResyncRequest(
            dry_run=dry_run,
            common_end=None if planned is None else planned.common_end,
            local_end=None if planned is None else planned.local_end,
        )
        return await self._ask(HaResyncBody, broker, RequestCode.HA_RESYNC, header, CHANGE_S)

    # --- calls -------------------------------------------------------------------------------

    async def _ask(
        self,
        kind: type[B],
        address: str,
        code: RequestCode,
        header: Header | None = None,
        timeout_s: float | None = None,
    ) -> B:
        answer = await self._call(address, code, header, timeout_s=timeout_s)
        return kind.decode(answer.body)

    async def _call(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        timeout_s: float | None = None,
    ) -> Command:
        try:
            answer = await self._client.request(
                address, code, header, body=body, timeout_s=timeout_s or self._timeout_s
            )
        except (ConnectFailedError, ConnectionLostError) as exc:
            exc.hint = _CONNECT_HINT
            raise
        except RequestTimeoutError as exc:
            if code in _CHANGES:
                exc.hint = f"it may still happen: see `rmq ha status -b {address}` before more"
            else:
                exc.hint = (
                    "the broker is overloaded or stuck: see its log, or try a longer --timeout"
                )
            raise
        if answer.code == ResponseCode.SUCCESS:
            return answer
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise StockBrokerError(address, code.name)
        kind = BrokerRefusedError if access_hint(answer.remark) is None else NotAllowedError
        raise kind(address, _WORDS.get(code, code.name), answer.code, answer.remark)


_CHANGES: Final = (
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.HA_PROMOTE,
    RequestCode.HA_DEMOTE,
    RequestCode.HA_RESYNC,
)
_WORDS: Final[Mapping[RequestCode, str]] = {
    RequestCode.UPDATE_BROKER_CONFIG: "the change of its settings",
    RequestCode.HA_STATUS: "to tell its status",
    RequestCode.HA_PROMOTE: "to become master",
    RequestCode.HA_DEMOTE: "to become a slave",
    RequestCode.HA_RESYNC: "to cut its log",
    RequestCode.HA_DIGESTS: "to give digests of its log",
    RequestCode.HA_FORGET: "to forget the slave",
    RequestCode.HA_RECORDS: "to give records of its log",
}


@asynccontextmanager
async def open_ha_client(
    timeout_s: float,
    *,
    credentials: Credentials | None = None,
    tls: TlsClientConfig | None = None,
) -> AsyncIterator[HaClient]:
    """Run a client for the length of an `async with` block."""
    context = None if tls is None else client_context(tls)
    async with open_client(credentials=credentials, tls_context=context) as client:
        yield HaClient(client, timeout_s)
