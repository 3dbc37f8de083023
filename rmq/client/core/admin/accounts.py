"""Accounts of brokers with access control, for admin tools. Pure.

Every broker has files of its own, so a change goes to all brokers of a cluster: masters and slaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from rmq.client.core.admin.calls import AdminCall
from rmq.client.core.admin.targets import TIMEOUT_S, change_all, groups_for
from rmq.client.core.flows import ask
from rmq.errors import BadAnswerError, ConfigError, ProtocolError
from rmq.remoting.bodies import DataVersion
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import (
    CreateAccessConfigRequest,
    DeleteAccessConfigRequest,
    GetBrokerAclConfigResponse,
    UpdateGlobalWhiteAddrsConfigRequest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.client.core.flows import Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.routes import Address
    from rmq.remoting.header import Header

_KEY_CHARS_NOT_ENOUGH: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who may do what. Permissions are `DENY`, `PUB`, `SUB` or `PUB|SUB`."""

    access_key: str
    secret_key: str | None = field(default=None, repr=False)
    """None: that of an account that is there stays."""
    white_address: str | None = None
    """Addresses from which no signature is needed."""
    is_admin: bool = False
    default_topic_permission: str | None = None
    default_group_permission: str | None = None
    topic_permissions: dict[str, str] = field(default_factory=dict)
    group_permissions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            value = getattr(self, name)
            if value is not None and len(value) <= _KEY_CHARS_NOT_ENOUGH:
                raise ConfigError(name, "has 6 characters or less, which brokers refuse")


class AccountVersions(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a broker's accounts: brokers of a cluster that agree have the same."""

    broker_name: str
    address: str
    cluster: str
    version: DataVersion


def put_account(
    nameservers: Nameservers,
    account: Account,
    *,
    cluster: str | None = None,
    broker: str | None = None,
) -> Flow[tuple[Address, ...]]:
    """Create an account, or change it; return where."""
    header = CreateAccessConfigRequest(
        access_key=account.access_key,
        secret_key=account.secret_key,
        white_remote_address=account.white_address,
        admin=account.is_admin,
        default_topic_perm=account.default_topic_permission,
        default_group_perm=account.default_group_permission,
        topic_perms=_joined(account.topic_permissions),
        group_perms=_joined(account.group_permissions),
    )
    return _at_all(
        nameservers,
        f"account {account.access_key}",
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        header,
        cluster=cluster,
        broker=broker,
    )


def delete_account(
    nameservers: Nameservers,
    access_key: str,
    *,
    cluster: str | None = None,
    broker: str | None = None,
) -> Flow[tuple[Address, ...]]:
    """Delete an account; return where."""
    return _at_all(
        nameservers,
        f"delete account {access_key}",
        RequestCode.DELETE_ACL_CONFIG,
        DeleteAccessConfigRequest(access_key=access_key),
        cluster=cluster,
        broker=broker,
    )


def set_white_addresses(
    nameservers: Nameservers,
    addresses: Sequence[str],
    *,
    path: str | None = None,
    cluster: str | None = None,
    broker: str | None = None,
) -> Flow[tuple[Address, ...]]:
    """Say from which addresses no account is needed; return where. `path` names another file."""
    return _at_all(
        nameservers,
        "addresses without an account",
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        UpdateGlobalWhiteAddrsConfigRequest(
            global_white_addrs=",".join(addresses), acl_file_full_path=path
        ),
        cluster=cluster,
        broker=broker,
    )


def account_versions(nameservers: Nameservers, address: str) -> Flow[AccountVersions]:
    """Return the version of a broker's accounts. One without access control does not answer."""
    answer = yield from ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO, timeout_s=TIMEOUT_S)
    header = answer.header(GetBrokerAclConfigResponse)
    try:
        version = DataVersion.decode(header.version.encode())
    except ProtocolError as exc:
        raise BadAnswerError(address, answer.ask.code.name, str(exc)) from exc
    return AccountVersions(
        broker_name=header.broker_name,
        address=header.broker_addr,
        cluster=header.cluster_name,
        version=version,
    )


def _at_all(
    nameservers: Nameservers,
    what: str,
    code: RequestCode,
    header: Header,
    *,
    cluster: str | None,
    broker: str | None,
) -> Flow[tuple[Address, ...]]:
    groups = yield from groups_for(nameservers, cluster=cluster, broker=broker)
    done = yield from change_all(
        what,
        [one for group in groups for one in group],
        lambda target: ask(target.address, code, header, timeout_s=TIMEOUT_S),
    )
    return tuple(target for target, _ in done)


def _joined(permissions: dict[str, str]) -> str | None:
    return ",".join(f"{name}={perm}" for name, perm in permissions.items()) or None


class AccountCalls:
    """The flows of this module that admin clients offer."""

    put_account = AdminCall(put_account)
    delete_account = AdminCall(delete_account)
    set_white_addresses = AdminCall(set_white_addresses)
    account_versions = AdminCall(account_versions)
