"""A guard for servers of tests that lets in what is signed and remembers what it has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.errors import RefusedError
from rmq.remoting.codes import ResponseCode
from rmq.remoting.signing import ACCESS_KEY, SIGNATURE, signature_of

if TYPE_CHECKING:
    from rmq.remoting.channel import Channel
    from rmq.remoting.command import Command
    from rmq.remoting.signing import Credentials


class SignatureGuard:
    """Refuses requests without the signature of an account, in the words of stock brokers."""

    def __init__(self, *accounts: Credentials) -> None:
        self._secrets = {each.access_key: each.secret_key for each in accounts}
        self.admitted: dict[str, set[int]] = {name: set() for name in self._secrets}
        """Codes of requests by the account that had signed them."""
        self.refused: list[int] = []
        """Codes of requests that were refused."""

    def __call__(self, channel: Channel, command: Command) -> None:
        fields = dict(command.ext_fields)
        name, signature = fields.get(ACCESS_KEY), fields.pop(SIGNATURE, "")
        if name is None:
            self._refuse(command, "No accessKey is configured")
        elif (secret := self._secrets.get(name)) is None:
            self._refuse(command, f"No acl config for {name}")
        elif signature != signature_of(fields, command.body, secret):
            self._refuse(command, f"Check signature failed for accessKey={name}")
        else:
            self.admitted[name].add(command.code)

    def _refuse(self, command: Command, reason: str) -> None:
        self.refused.append(command.code)
        remark = f"org.apache.rocketmq.acl.common.AclException: {reason}"
        raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
