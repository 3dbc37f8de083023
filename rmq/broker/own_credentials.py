"""What a broker signs its own calls with: those to nameservers, to its master and to its peers.

They stand in a file (`credentialsFile`), which is read again when it changes, so that a secret can
be replaced while brokers run: first where it is checked, then here. All calls block.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias, final

from rmq.client.core.credentials import read_credentials
from rmq.errors import ConfigError
from rmq.settings.exposure import exposed_file_warnings

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.client import RemotingClient

logger = logging.getLogger(__name__)

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

    def load(self) -> None:
        """Read the file; raise `ConfigError`."""
        path = self._path
        if path is None:
            return
        # First, so that a change in between is noticed by the next check.
        self._stamp = _stamp_of(path)
        credentials = read_credentials(path)
        if credentials != self._client.credentials:
            self._client.credentials = credentials
            logger.info("own calls are signed as account %s, by %s", credentials.access_key, path)

    def poll(self) -> None:
        """Read the file again if it has changed; one that is wrong changes nothing."""
        if self._path is None or _stamp_of(self._path) == self._stamp:
            return
        try:
            self.load()
        except ConfigError as exc:
            logger.warning("this broker goes on signing as before: %s", exc.with_hint)
        # Of the file that was there at the start, the settings have told.
        for line in exposed_file_warnings(self._path, "credentialsFile"):
            logger.warning("%s", line)


def _stamp_of(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
