"""Accounts and white lists by request: 50, 51, 52 and 53, `mqadmin`'s commands of access control.

A change is checked, written and in force before it is answered. Without access control there is
nothing to change or show, and the answer says so (4.9.8 answers with an empty remark, and 52 not at
all).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.access.document import AccountChange
from rmq.errors import ConfigError, RefusedError, StorageError
from rmq.model import fastjson
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import EmptyHeader, GetBrokerAclConfigResponse
from rmq.remoting.protocol import Requests
from rmq.remoting.signing import ACCESS_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.access.control import AccessControl
    from rmq.broker.config import LiveConfig
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.headers import (
        CreateAccessConfigRequest,
        DeleteAccessConfigRequest,
        UpdateGlobalWhiteAddrsConfigRequest,
    )
    from rmq.remoting.request import Request

logger = logging.getLogger(__name__)

REMARK_OFF: Final = "this broker has no access control: aclEnable is false"


@final
class AccessHandlers:
    """Shows and changes what access control goes by."""

    def __init__(self, live: LiveConfig, access: AccessControl | None) -> None:
        self._live = live
        self._access = access

    def add_to(self, table: HandlerTable) -> None:
        table.add_async(Requests.UPDATE_AND_CREATE_ACL_CONFIG, self.put_account)
        table.add_async(Requests.DELETE_ACL_CONFIG, self.delete_account)
        table.add(Requests.GET_BROKER_CLUSTER_ACL_INFO, self.versions)
        table.add_async(Requests.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, self.put_white_lists)

    async def put_account(self, request: Request[CreateAccessConfigRequest]) -> None:
        """50 UPDATE_AND_CREATE_ACL_CONFIG."""
        header = request.header
        access = self._existing(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED)
        change = AccountChange(
            access_key=header.access_key,
            secret_key=header.secret_key,
            white_remote_address=header.white_remote_address,
            is_admin=header.admin,
            default_topic_perm=header.default_topic_perm,
            default_group_perm=header.default_group_perm,
            topic_perms=_split(header.topic_perms),
            group_perms=_split(header.group_perms),
        )

        def put() -> bool:
            access.put_account(change)
            return True

        await _change(put, request, ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, "")
        _log(request, "an account was changed", changed=header.access_key, admin=header.admin)

    async def delete_account(self, request: Request[DeleteAccessConfigRequest]) -> None:
        """51 DELETE_ACL_CONFIG."""
        key = request.header.access_key
        access = self._existing(ResponseCode.DELETE_ACL_CONFIG_FAILED)
        await _change(
            lambda: access.remove_account(key),
            request,
            ResponseCode.DELETE_ACL_CONFIG_FAILED,
            f"The accesskey[{key}] corresponding to accessConfig has been deleted failed.",
        )
        _log(request, "an account was deleted", deleted=key)

    async def put_white_lists(self, request: Request[UpdateGlobalWhiteAddrsConfigRequest]) -> None:
        """53 UPDATE_GLOBAL_WHITE_ADDRS_CONFIG."""
        header = request.header
        addresses = _split(header.global_white_addrs) or ()
        access = self._existing(ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED)
        await _change(
            lambda: access.put_white_lists(addresses, header.acl_file_full_path),
            request,
            ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
            f"The globalWhiteAddresses[{header.global_white_addrs}] has been updated failed.",
        )
        _log(request, "the global white list was changed", addresses=header.global_white_addrs)

    def versions(self, request: Request[EmptyHeader]) -> None:
        """52 GET_BROKER_CLUSTER_ACL_INFO."""
        main, by_path = self._existing(ResponseCode.SYSTEM_ERROR).versions()
        config = self._live.current
        request.reply(
            GetBrokerAclConfigResponse(
                version=main.encode().decode(),
                all_acl_file_version=fastjson.dumps(by_path).decode(),
                broker_name=config.broker_name,
                broker_addr=config.address,
                cluster_name=config.cluster_name,
            )
        )

    def _existing(self, code: ResponseCode) -> AccessControl:
        if self._access is None:
            raise RefusedError(code, REMARK_OFF)
        return self._access


async def _change(
    change: Callable[[], bool],
    request: Request[CreateAccessConfigRequest]
    | Request[DeleteAccessConfigRequest]
    | Request[UpdateGlobalWhiteAddrsConfigRequest],
    code: ResponseCode,
    remark: str,
) -> None:
    """Make a change in a thread and answer; `remark` is said of one that did not apply."""
    try:
        done = await trio.to_thread.run_sync(change)
    except (ValueError, ConfigError, StorageError) as exc:
        raise RefusedError(code, str(exc)) from None
    if not done:
        raise RefusedError(code, remark)
    request.reply()


def _split(text: str | None) -> tuple[str, ...] | None:
    """Split a list as Java does: empty items at the end do not count, unless there is no other."""
    return None if text is None else tuple(text.rstrip(",").split(","))


def _log(
    request: Request[CreateAccessConfigRequest]
    | Request[DeleteAccessConfigRequest]
    | Request[UpdateGlobalWhiteAddrsConfigRequest],
    what: str,
    **facts: object,
) -> None:
    access_key = request.command.ext_fields.get(ACCESS_KEY)
    logger.info(what, extra={**facts, "peer": request.channel.peer, "access_key": access_key})
