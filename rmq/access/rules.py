"""The check of one request against accounts and white lists. Pure.

In this order, as in RocketMQ 4.9.8: an address of a global white list passes; the access key must
be that of an account; an address of the account's own white list passes; the signature must be
right; the account must have the rights that `needs` asks for. Refusals are worded as there, because
clients show them.

As there, a request can be sent again by one who has seen it: neither time nor number is signed.
Against that there is TLS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.access.needs import NEEDS, Need
from rmq.access.permissions import PUB
from rmq.access.signatures import SignatureChecks
from rmq.access.white_list import address_of
from rmq.errors import ProtocolError, RefusedError
from rmq.model.names import TRACE_TOPIC
from rmq.remoting.codes import ResponseCode
from rmq.remoting.signing import ACCESS_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmq.access.accounts import Account, Resource
    from rmq.access.white_list import WhiteList
    from rmq.remoting.command import Command

_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
"""What a stock broker's refusals begin with: clients and their tests know them by it."""
_TRACES: Final = (TRACE_TOPIC, PUB)
_PEERS_MAX: Final = 65_536
_PASSED_MAX: Final = 10_000
"""Of one account."""
_NAME_CHARS_KEPT: Final = 255
_NO_ACCOUNT_NEEDED: Final = frozenset({"*"})
"""What `_meet` returns for an address of a global white list, known by its identity."""
_NEEDS: Final = dict(NEEDS)
_UNKNOWN: Final = Need(is_admin=True)


class AccessRefusedError(RefusedError):
    """A request that its sender may not make."""

    def __init__(self, reason: str, access_key: str | None = None) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, _EXCEPTION + reason)
        self.reason = reason
        self.access_key = access_key


@final
class Rules:
    """Accounts and white lists in force. Never changed: other rules are another object."""

    def __init__(self, accounts: Iterable[Account], white_lists: Iterable[WhiteList]) -> None:
        self.accounts: Mapping[str, Account] = {each.access_key: each for each in accounts}
        self._white_lists: Sequence[WhiteList] = tuple(white_lists)
        self._listing = [each for each in self.accounts.values() if not each.white_list.is_empty]
        """The accounts with a white list of their own."""
        self._signatures = SignatureChecks()
        self._peers: dict[str, frozenset[str]] = {}

    def check(self, peer: str, command: Command) -> None:
        """Return if the request of `peer` is allowed, else raise `AccessRefusedError`."""
        known = self._peers.get(peer)
        if known is None:
            known = self._meet(peer)
        if known is _NO_ACCOUNT_NEEDED:
            return
        try:
            fields = command.ext_fields
        except ProtocolError as exc:
            raise AccessRefusedError(str(exc)) from None
        account = self.accounts.get(fields.get(ACCESS_KEY, ""))
        if account is None:
            raise _no_account(fields)
        if account.access_key in known:
            return
        body = command.body
        if not self._signatures.is_signed(fields, body, account.signing_key):
            raise AccessRefusedError(
                f"Check signature failed for accessKey={account.access_key}", account.access_key
            )
        need = _NEEDS.get(command.code, _UNKNOWN)
        resources: tuple[Resource, ...] = ()
        if need.resources is not None:
            try:
                resources = need.resources(fields, body)
            except ProtocolError as exc:
                raise AccessRefusedError(str(exc), account.access_key) from None
            if resources in account.passed or _TRACES in resources:
                return
        if need.is_admin and not account.is_admin:
            raise AccessRefusedError(
                f"Need admin permission for request code={command.code}, but"
                f" accessKey={account.access_key} is not",
                account.access_key,
            )
        refused = account.first_refused(resources)
        if refused is not None:
            raise AccessRefusedError(f"No default permission for {refused}", account.access_key)
        if resources and not need.is_admin:
            _remember(account, resources)

    def is_signed_by_admin(self, command: Command) -> bool:
        """Return whether an account with admin rights has signed the request.

        White lists do not count here: they say where a request came from, not who made it.
        """
        try:
            fields = command.ext_fields
        except ProtocolError:
            return False
        account = self.accounts.get(fields.get(ACCESS_KEY, ""))
        return (
            account is not None
            and account.is_admin
            and self._signatures.is_signed(fields, command.body, account.signing_key)
        )

    def _meet(self, peer: str) -> frozenset[str]:
        """Return, once for every connection, the accounts that need not sign from its address."""
        host = peer.rpartition(":")[0] or peer
        address = address_of(host.removeprefix("[").removesuffix("]"))
        if any(each.matches(address) for each in self._white_lists):
            known = _NO_ACCOUNT_NEEDED
        else:
            known = frozenset(
                each.access_key for each in self._listing if each.white_list.matches(address)
            )
        if len(self._peers) >= _PEERS_MAX:
            self._peers.clear()
        self._peers[peer] = known
        return known


def _remember(account: Account, resources: tuple[Resource, ...]) -> None:
    """Ask for these resources first from now on, if they are like those of a send or a pull."""
    is_small = len(resources) <= 2 and all(len(name) <= _NAME_CHARS_KEPT for name, _ in resources)
    if is_small and len(account.passed) < _PASSED_MAX:
        account.passed.add(resources)


def _no_account(fields: Mapping[str, str]) -> AccessRefusedError:
    access_key = fields.get(ACCESS_KEY)
    if access_key is None:
        return AccessRefusedError("No accessKey is configured")
    return AccessRefusedError(f"No acl config for {access_key}", access_key)
