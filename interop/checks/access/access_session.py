"""What the cases of this check share: a cluster with access control and its accounts."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from interop.support.cases import MismatchError
from interop.support.cluster import Against
from interop.support.java_client import StockClientError
from interop.support.mqadmin import Mqadmin
from rmq.remoting.signing import Credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from interop.support.cases import Case
    from interop.support.cluster import Broker, Cluster
    from interop.support.java_client import DriverKit
    from interop.support.results import Operations

BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "aclEnable": "true",
    "autoCreateTopicEnable": "false",
    "traceTopicEnable": "true",
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    # Retries, which begin at level 3, come soon.
    "messageDelayLevel": "1s 5s 1s 2s 3s",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "1000",
}

ADMIN: Final = Credentials(access_key="interopAdmin", secret_key="interopAdminSecret")
USER: Final = Credentials(access_key="interopUser", secret_key="interopUserSecret")
HOUSEMATE: Final = Credentials(access_key="interopHousemate", secret_key="interopHousemateSecret")
"""Its address is on its own white list, so that its signature does not matter."""
FORGER: Final = Credentials(access_key="interopUser", secret_key="a wrong guess")
STRANGER: Final = Credentials(access_key="interopStranger", secret_key="no matter")

OPEN: Final = "AclOpen"
"""A topic that the user may write and read."""
WRITE_ONLY: Final = "AclWriteOnly"
READ_ONLY: Final = "AclReadOnly"
CLOSED: Final = "AclClosed"
TOPICS: Final = (OPEN, WRITE_ONLY, READ_ONLY, CLOSED)
READERS: Final = "acl-readers"
"""A group that the user may use."""

RELOAD_S: Final = 20
"""Both kinds of brokers look at their files every 5 s."""

NO_KEY: Final = "No accessKey is configured"
NO_ACCOUNT: Final = "No acl config for"
BAD_SIGNATURE: Final = "Check signature failed"
NO_PERMISSION: Final = "No default permission for"
NO_ADMIN: Final = "Need admin permission"


def accounts(*, white_list: str = "10.10.10.10", opened: str = f"{CLOSED}=DENY") -> str:
    """Return a `plain_acl.yml`; `opened` is what the user may do with the closed topic."""
    return f"""\
globalWhiteRemoteAddresses:
- {white_list}
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
  - {OPEN}=PUB|SUB
  - {WRITE_ONLY}=PUB
  - {READ_ONLY}=SUB
  - {opened}
  groupPerms:
  - {READERS}=SUB
- accessKey: {HOUSEMATE.access_key}
  secretKey: {HOUSEMATE.secret_key}
  whiteRemoteAddress: 127.0.0.1
  admin: false
"""


def keys(credentials: Credentials | None) -> dict[str, str]:
    """Return the options of a stock client that signs, or does not."""
    if credentials is None:
        return {}
    return {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}


@dataclass(frozen=True)
class AccessSession:
    """One broker with access control, and stock clients."""

    operations: Operations
    against: Against
    cluster: Cluster
    broker: Broker
    kit: DriverKit

    @property
    def accounts_file(self) -> Path:
        return place_of_accounts(self.against, self.cluster.folder, self.broker)

    def operation(
        self, part: str, what: str, *, timeout_s: float = 60
    ) -> AbstractContextManager[Case]:
        return self.operations.operation(part, what, timeout_s=timeout_s)

    def write_accounts(self, text: str) -> None:
        self.accounts_file.write_text(text)

    @asynccontextmanager
    async def mqadmin(self, credentials: Credentials | None) -> AsyncIterator[Mqadmin]:
        """Run a mqadmin whose `conf/tools.yml` has an account, or that has no such file."""
        async with self.kit.driver(self.cluster.nameserver) as tool:
            if credentials is not None:
                (tool.folder / "conf" / "tools.yml").write_text(
                    f"accessKey: {credentials.access_key}\nsecretKey: {credentials.secret_key}\n"
                )
            yield Mqadmin(tool, self.cluster.nameserver)


def place_of_accounts(against: Against, folder: Path, broker: Broker) -> Path:
    """Return where a broker reads its accounts: one of ours, beside its settings."""
    conf = folder / "conf" if against is Against.STOCK else broker.folder
    conf.mkdir(exist_ok=True)
    # A stock broker watches this folder, and fails if it is not there.
    (conf / "acl").mkdir(exist_ok=True)
    return conf / "plain_acl.yml"


async def refusal(request: Awaitable[object]) -> str:
    """Return why a request of the stock client was refused, as it must be."""
    try:
        await request
    except StockClientError as exc:
        return f"{exc.message} {exc.cause or ''}"
    raise MismatchError("the request should have been refused")
