"""What a broker signs its own calls with: those to nameservers, to its master and to its peers.

They stand in a file (`credentialsFile`), which is read again when it changes, so that a secret can
be replaced while brokers run: first where it is checked, then here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias, final

import trio

from rmq.client.core.credentials import read_credentials
from rmq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.client import RemotingClient
    from rmq.remoting.signing import Credentials

logger = logging.getLogger(__name__)

CHECK_S: Final = 5.0

_Stamp: TypeAlias = "tuple[int, int, int] | None"
"""Time of change, size and inode of the file; None: it cannot be told."""


@final
class OwnCredentials:
    """Has a client sign its requests as a file says."""

    def __init__(self, client: RemotingClient, path: Path | None) -> None:
        """With no `path`, nothing is signed."""
        self._client = client
        self._path = path
        self._stamp: _Stamp = None

    async def load(self) -> None:
        """Read the file for the first time; raise `ConfigError`."""
        if self._path is not None:
            stamp, credentials = await trio.to_thread.run_sync(_read, self._path)
            self._take(stamp, credentials)

    async def run(self) -> None:
        """Read the file again whenever it has changed, until cancelled."""
        path = self._path
        if path is None:
            return
        while True:
            await trio.sleep(CHECK_S)
            stamp = await trio.to_thread.run_sync(_stamp_of, path)
            if stamp == self._stamp:
                continue
            self._stamp = stamp
            try:
                stamp, credentials = await trio.to_thread.run_sync(_read, path)
            except ConfigError as exc:
                logger.warning(
                    "%s; this broker goes on signing as before%s",
                    exc,
                    "" if exc.hint is None else f": {exc.hint}",
                )
            else:
                self._take(stamp, credentials)

    def _take(self, stamp: _Stamp, credentials: Credentials) -> None:
        self._stamp = stamp
        if credentials != self._client.credentials:
            self._client.credentials = credentials
            logger.info(
                "own calls are signed as account %s, by %s", credentials.access_key, self._path
            )


def _read(path: Path) -> tuple[_Stamp, Credentials]:
    # In this order: what changes in between is noticed by the next check.
    return _stamp_of(path), read_credentials(path)


def _stamp_of(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
