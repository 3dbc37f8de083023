"""Access control of a server: the guard of its requests, and the files behind it.

The rules in force are replaced as a whole, never changed. The files are read and written in
threads, one at a time; `guard` and `is_admin` are for the server's own thread and never wait.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from rmq.access.document import (
    format_document,
    read_document,
    with_account,
    with_white_lists,
    without_account,
)
from rmq.access.files import read_one
from rmq.access.rules import AccessRefusedError, Rules
from rmq.errors import ConfigError
from rmq.files import replace_file
from rmq.remoting.request import name_of
from rmq.settings.exposure import exposed_file_warnings
from rmq.settings.yaml_file import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rmq.access.document import AccountChange, Document
    from rmq.access.files import AccessFiles
    from rmq.remoting.bodies import DataVersion
    from rmq.remoting.channel import Channel
    from rmq.remoting.command import Command
    from rmq.remoting.request import Request
    from rmq.settings.yaml_file import YamlValue

logger = logging.getLogger(__name__)

_CHARS_SHOWN: Final = 200


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the files say."""

    rules: Rules
    documents: Sequence[Document]


@final
class AccessControl:
    """The rules in force, and how they are read and changed."""

    def __init__(self, files: AccessFiles, *, now_ms: Callable[[], int] = _system_ms) -> None:
        """Read the files; raise `ConfigError` if one is missing or wrong. Blocks."""
        self._files = files
        self._now_ms = now_ms
        self._lock = threading.Lock()
        """Held by the one thread that reads or writes the files."""
        self._stamp = files.stamp()
        self._loaded = _load(files.read(), files.main)
        for line in self._warnings():
            logger.warning("%s", line)

    # --- for the server's thread ---

    def guard(self, channel: Channel, command: Command) -> None:
        """Raise `AccessRefusedError` for a request that its sender may not make."""
        try:
            self._loaded.rules.check(channel.peer, command)
        except AccessRefusedError as refusal:
            channel.warn(
                "refused by access control",
                "refused %s of %s, access key %s: %s",
                name_of(command),
                channel.peer,
                (refusal.access_key or "none")[:_CHARS_SHOWN],
                refusal.reason[:_CHARS_SHOWN],
            )
            raise

    def is_admin(self, request: Request[Any]) -> bool:
        """Return whether an account with admin rights has signed a request."""
        return self._loaded.rules.is_signed_by_admin(request.command)

    def versions(self) -> tuple[DataVersion, dict[str, DataVersion]]:
        """Return the version of the main file, and those of all files by path."""
        versions = {each.path: each.version for each in self._loaded.documents}
        return versions[str(self._files.main)], versions

    # --- in threads ---

    def poll(self) -> bool:
        """Read the files again if one of them has changed; return whether there are other rules.

        Files that are wrong change nothing: the rules stay, and one line says why.
        """
        with self._lock:
            stamp = self._files.stamp()
            if stamp == self._stamp:
                return False
            # A file that is wrong is not read again before it changes again.
            self._stamp = stamp
            try:
                self._loaded = _load(self._files.read(), self._files.main)
            except ConfigError as exc:
                logger.error("access control goes on with the rules it has: %s", exc)
                return False
            logger.info(
                "access control was read again",
                extra={
                    "accounts": len(self._loaded.rules.accounts),
                    "files": len(self._loaded.documents),
                },
            )
            for line in self._warnings():
                logger.warning("%s", line)
            return True

    def put_account(self, change: AccountChange) -> None:
        """Create or change an account; raise `ValueError`, `ConfigError` or `StorageError`."""
        with self._lock:
            path = self._home_of(change.access_key) or self._files.main
            self._rewrite(path, with_account(read_one(path)[0], change, self._now_ms()))

    def remove_account(self, access_key: str) -> bool:
        """Delete an account; return whether there was one. Raises as `put_account` does."""
        with self._lock:
            path = self._home_of(access_key)
            if path is None:
                return False
            members = without_account(read_one(path)[0], access_key, self._now_ms())
            if members is None:
                return False
            self._rewrite(path, members)
            return True

    def put_white_lists(self, addresses: Sequence[str], named: str | None) -> bool:
        """Replace the global white lists of a file, the main one unless another one is named.

        Return whether it is one of the files of access control. Raises as `put_account` does.
        """
        with self._lock:
            wanted = named or str(self._files.main)
            path = next((each for each in self._files.paths() if str(each) == wanted), None)
            if path is None:
                return False
            self._rewrite(path, with_white_lists(read_one(path)[0], addresses, self._now_ms()))
            return True

    def _home_of(self, access_key: str) -> Path | None:
        """Return the file that counts for an account."""
        for path in self._files.paths():
            if any(each.access_key == access_key for each in read_one(path)[1].accounts):
                return path
        return None

    def _rewrite(self, path: Path, members: Mapping[str, YamlValue]) -> None:
        """Replace a file if it makes rules together with the others, and put them in force."""
        text = format_document(members)
        changed = read_document(parse_yaml(text, str(path)), str(path), self._now_ms())
        others = self._files.read()
        documents = [changed if each.path == changed.path else each for each in others]
        loaded = _load(documents, self._files.main)
        replace_file(path, text)
        self._loaded = loaded

    def _warnings(self) -> list[str]:
        lines = [
            line for path in self._files.paths() for line in exposed_file_warnings(path, "accounts")
        ]
        homes: dict[str, str] = {}
        for document in self._loaded.documents:
            for account in document.accounts:
                home = homes.setdefault(account.access_key, document.path)
                if home is not document.path:
                    lines.append(
                        f"{document.path}: access key {account.access_key} does not count, because"
                        f" {home} has it, too"
                    )
        return lines


def _load(documents: Sequence[Document], main: Path) -> _Loaded:
    """Put the files together; the first account with an access key counts, as in 4.9.8."""
    # The last one of a key stays in a dictionary.
    accounts = [account for document in documents for account in document.accounts][::-1]
    white_lists = [each for document in documents for each in document.white_lists]
    if not accounts and all(each.is_empty for each in white_lists):
        raise ConfigError(
            str(main),
            "names no account and no address, so every request would be refused",
            hint="add an account, or set aclEnable=false",
        )
    return _Loaded(Rules(accounts, white_lists), documents)


def admin_rights(access: AccessControl | None) -> Callable[[Request[Any]], bool]:
    """Return whether a request has admin rights: without access control none has."""
    return _has_none if access is None else access.is_admin


def _has_none(_: Request[Any]) -> bool:
    return False
