"""What the tests of access control share: accounts, files of them, and signed requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.access.control import AccessControl
from rmq.access.files import AccessFiles
from rmq.access.needs import NEEDS
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.signing import Credentials, signed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rmq.remoting.header import Header

ADMIN: Final = Credentials(access_key="the-admin", secret_key="admin-secret")
USER: Final = Credentials(access_key="the-user", secret_key="user-secret")
STRANGER: Final = Credentials(access_key="stranger", secret_key="stranger-secret")
FORGER: Final = Credentials(access_key=ADMIN.access_key, secret_key="guessed-secret")

ACL: Final = """\
# The accounts of these tests.
globalWhiteRemoteAddresses:
  - 10.10.103.*

accounts:
  - accessKey: the-admin
    secretKey: admin-secret
    admin: true

  - accessKey: the-user
    secretKey: user-secret
    whiteRemoteAddress: 192.168.7.7
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - Orders=PUB
      - Both=PUB|SUB
      - Nothing=DENY
    groupPerms:
      - shut=DENY
"""
NOW_MS: Final = 1_700_000_000_000


def access_in(folder: Path, text: str = ACL) -> AccessControl:
    """Write the main file and return access control by it."""
    path = folder / "plain_acl.yml"
    path.write_text(text)
    path.chmod(0o600)
    return AccessControl(AccessFiles(path), now_ms=lambda: NOW_MS)


def signed_frame(
    credentials: Credentials | None,
    code: int,
    header: Header | None = None,
    body: bytes = b"",
    *,
    opaque: int = 1,
    oneway: bool = False,
    extra: Mapping[str, str] | None = None,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    """Return a request signed as clients sign it; without credentials it is not signed."""
    if credentials is not None:
        extra = signed(credentials, header, extra, body)
    return (
        encode_frame(
            code=code,
            flag=FLAG_ONEWAY if oneway else 0,
            opaque=opaque,
            header=header,
            extra=extra,
            body_length=len(body),
            serialization=serialization,
        )
        + body
    )


def codes_for_servers() -> list[RequestCode]:
    """The codes that a broker or nameserver may serve."""
    return [code for code in RequestCode if not NEEDS[code].is_for_clients]
