"""Throw-away certificates in the form both sides can read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trustme
from cryptography.hazmat.primitives import serialization

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Identity:
    """A certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Somebody who signs certificates; `trust` is the file that tells others so."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._ca = trustme.CA(organization_name=name)
        self.trust = folder / f"{name}-trust.pem"
        self._ca.cert_pem.write_to_path(str(self.trust))

    def issue(self, owner: str) -> Identity:
        """Sign a certificate for the loopback address."""
        issued = self._ca.issue_cert("127.0.0.1", "localhost", common_name=owner)
        identity = Identity(
            self._folder / f"{self._name}-{owner}.pem",
            self._folder / f"{self._name}-{owner}.key",
        )
        identity.cert.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        identity.key.write_bytes(_pkcs8(issued.private_key_pem.bytes()))
        return identity


def _pkcs8(pem: bytes) -> bytes:
    # Netty reads no other form of private key, and no encryption that is written today.
    key = serialization.load_pem_private_key(pem, password=None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
