"""The check of one request against accounts and white lists. Pure.

In this order, as in RocketMQ 4.9.8: an address of a global white list passes; the access key must
be that of an account; an address of the account's own white list passes; the signature must be
right; the account must have the rights that `needs` asks for. Refusals are worded as there, because
clients show them.

As there, a request can be sent again by one who has seen it: neither time nor number is signed.
Against that there is TLS.

Requests of clients come in great numbers and are alike. So the fields of a JSON request are read
in the order in which they are signed (`signed_texts`), and what an account was permitted before is
remembered. That way leads to a yes only: whatever is not in order there is checked again in full.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, final

import msgspec

from rmq.access.needs import NEEDS, Need
from rmq.access.permissions import PUB
from rmq.access.signatures import SignatureChecks, is_right
from rmq.access.signed_texts import SignedTexts
from rmq.access.white_list import address_of
from rmq.errors import ProtocolError, RefusedError
from rmq.model.names import TRACE_TOPIC
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.protocol import REQUESTS
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
        self._texts: dict[int, SignedTexts] = {}
        """Readers of requests that were in order, by code."""
        self._peers: dict[str, frozenset[str]] = {}

    def check(self, peer: str, command: Command) -> None:
        """Return if the request of `peer` is allowed, else raise `AccessRefusedError`."""
        known = self._peers.get(peer)
        if known is None:
            known = self._meet(peer)
        if known is _NO_ACCOUNT_NEEDED:
            return
        texts = self._texts.get(command.code)
        if texts is None or not self._is_as_before(texts, command):
            self._check_in_full(known, command)

    def _is_as_before(self, texts: SignedTexts, command: Command) -> bool:
        """Return whether a request is signed by an account that may make it, as it was found before
        that it may. If not, this says nothing.
        """
        read = texts.read(command)
        if read is None:
            return False
        account = self.accounts.get(read[texts.access_key_at])
        if account is None:
            return False
        if not is_right(read[-1], "".join(read[:-1]), command.body, account.signing_key):
            return False
        asked_of = texts.asked_of
        return asked_of is None or (command.code, asked_of(read)) in account.passed

    def _check_in_full(self, known: frozenset[str], command: Command) -> None:
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
        code = command.code
        need = _NEEDS.get(code, _UNKNOWN)
        if command.binary_ext is None and need.is_told_by_fields:
            self._expect(code, fields)
        asked = [fields.get(name, "") for name in need.fields]
        if asked and _key_of(code, asked) in account.passed:
            return
        self._check_rights(account, command, need, fields)
        if asked and not need.is_admin:
            _remember(account, code, asked)

    def _check_rights(
        self, account: Account, command: Command, need: Need, fields: Mapping[str, str]
    ) -> None:
        resources: tuple[Resource, ...] = ()
        if need.resources is not None:
            try:
                resources = need.resources(fields, command.body)
            except ProtocolError as exc:
                raise AccessRefusedError(str(exc), account.access_key) from None
            if _TRACES in resources:
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

    def _expect(self, code: int, fields: Mapping[str, str]) -> None:
        """Be ready for more requests with these fields, of which one was signed rightly."""
        texts = self._texts.get(code)
        if texts is None:
            self._texts[code] = _texts_of(code)
        elif not texts.knows(fields):
            wider = texts.knowing(fields)
            if wider is not None:
                self._texts[code] = wider

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


@cache
def _texts_of(code: int) -> SignedTexts:
    """Return what reads the fields that a request is declared with."""
    declared = msgspec.structs.fields(REQUESTS[RequestCode(code)].read_as)
    return SignedTexts((each.encode_name for each in declared), _NEEDS[code].fields)


def _remember(account: Account, code: int, asked: Sequence[str]) -> None:
    """Let this account make such requests from now on, without asking what it may.

    A field that was not sent asks for nothing, an empty one for something: neither is remembered.
    """
    is_small = all(0 < len(text) <= _NAME_CHARS_KEPT for text in asked)
    if is_small and len(account.passed) < _PASSED_MAX:
        account.passed.add(_key_of(code, asked))


def _key_of(code: int, asked: Sequence[str]) -> tuple[int, str | tuple[str, ...]]:
    """Return what `Account.passed` holds: as `SignedTexts.asked_of` returns the texts."""
    return code, asked[0] if len(asked) == 1 else tuple(asked)


def _no_account(fields: Mapping[str, str]) -> AccessRefusedError:
    access_key = fields.get(ACCESS_KEY)
    if access_key is None:
        return AccessRefusedError("No accessKey is configured")
    return AccessRefusedError(f"No acl config for {access_key}", access_key)
