"""One file of accounts and white lists: what it says, and how a request changes it. Pure.

The members are those of `plain_acl.yml` of RocketMQ 4.9.8:

    globalWhiteRemoteAddresses: [10.0.0.*]
    accounts:
      - accessKey: RocketMQ
        secretKey: "12345678"
        whiteRemoteAddress:
        admin: false
        defaultTopicPerm: DENY
        defaultGroupPerm: SUB
        topicPerms: [topicA=PUB|SUB]
        groupPerms: [groupA=SUB]
    dataVersion:
      - counter: 1
        timestamp: 1700000000000

A member that is not known, or a word that means nothing, is refused with the file and the account;
4.9.8 passes over it, and a permission with a misspelt word is then DENY.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from rmq.access.accounts import KEY_CHARS_MIN, Account
from rmq.access.permissions import checked_resources, permission_of, resource_of
from rmq.access.white_list import WhiteList
from rmq.errors import ConfigError
from rmq.model.names import retry_topic
from rmq.remoting.bodies import DataVersion
from rmq.settings.setting import nearest_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.settings.yaml_file import YamlValue

_WHITE: Final = "globalWhiteRemoteAddresses"
_ACCOUNTS: Final = "accounts"
_VERSION: Final = "dataVersion"
_MEMBERS: Final = (_WHITE, _ACCOUNTS, _VERSION)
_ACCOUNT_MEMBERS: Final = (
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
)
_FLAGS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0", ""), False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What one file says."""

    path: str
    accounts: tuple[Account, ...]
    white_lists: tuple[WhiteList, ...]
    version: DataVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChange:
    """What a request says of an account that is to be created or changed (50)."""

    access_key: str
    secret_key: str | None
    white_remote_address: str | None
    is_admin: bool
    default_topic_perm: str | None
    default_group_perm: str | None
    topic_perms: tuple[str, ...] | None
    group_perms: tuple[str, ...] | None


def read_document(members: Mapping[str, YamlValue], path: str, changed_ms: int) -> Document:
    """Read the members of a file; raise `ConfigError` that names it and what is wrong.

    `changed_ms` is when the file was last written, for one that tells no version.
    """
    reading = _Reading(path)
    reading.check_known(members, _MEMBERS, "")
    white_lists = [
        reading.white_list(text, _WHITE)
        for text in reading.texts(members.get(_WHITE), _WHITE)
        if text is not None
    ]
    accounts = [
        reading.account(entry, f"{_ACCOUNTS}, entry {number}")
        for number, entry in enumerate(reading.entries(members.get(_ACCOUNTS), _ACCOUNTS), 1)
    ]
    return Document(
        path=path,
        accounts=tuple(accounts),
        white_lists=tuple(white_lists),
        version=reading.version(members.get(_VERSION), changed_ms),
    )


# --- changes ---


def with_account(
    members: Mapping[str, YamlValue], change: AccountChange, now_ms: int
) -> dict[str, YamlValue]:
    """Return the members with the account created or changed; raise ValueError as 4.9.8 words it.

    Of an account that exists, what the change leaves out stays.
    """
    _check_keys(change.access_key, change.secret_key)
    topics = None if change.topic_perms is None else checked_resources(change.topic_perms)
    groups = None if change.group_perms is None else checked_resources(change.group_perms)
    WhiteList(change.white_remote_address)
    accounts = _accounts(members)
    account = next((each for each in accounts if each.get("accessKey") == change.access_key), {})
    others = [each for each in accounts if each is not account]
    changes: dict[str, YamlValue] = {
        "accessKey": change.access_key,
        "secretKey": change.secret_key,
        "whiteRemoteAddress": change.white_remote_address,
        "admin": "true" if change.is_admin else "false",
        "defaultTopicPerm": change.default_topic_perm or None,
        "defaultGroupPerm": change.default_group_perm or None,
        "topicPerms": None if topics is None else [*topics],
        "groupPerms": None if groups is None else [*groups],
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return _next_version({**members, _ACCOUNTS: [*others, {**account, **given}]}, now_ms)


def without_account(
    members: Mapping[str, YamlValue], access_key: str, now_ms: int
) -> dict[str, YamlValue] | None:
    """Return the members without an account; None if there is none of this key."""
    accounts = _accounts(members)
    others = [each for each in accounts if each.get("accessKey") != access_key]
    if len(others) == len(accounts):
        return None
    return _next_version({**members, _ACCOUNTS: [*others]}, now_ms)


def with_white_lists(
    members: Mapping[str, YamlValue], addresses: Iterable[str], now_ms: int
) -> dict[str, YamlValue]:
    """Return the members with other global white lists; raise ValueError as 4.9.8 words it."""
    addresses = list(addresses)
    for address in addresses:
        WhiteList(address)
    return _next_version({**members, _WHITE: [*addresses]}, now_ms)


def format_document(members: Mapping[str, YamlValue]) -> str:
    """Write the members as YAML that brokers of 4.9.8 read, too."""
    content: dict[str, Any] = {name: value for name, value in members.items() if value is not None}
    if _ACCOUNTS in content:
        content[_ACCOUNTS] = [
            {
                name: _FLAGS[value.lower()] if name == "admin" and value is not None else value
                for name, value in account.items()
            }
            for account in content[_ACCOUNTS]
        ]
    if _VERSION in content:
        content[_VERSION] = [
            {name: int(value) for name, value in version.items()} for version in content[_VERSION]
        ]
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return str(text)


def _accounts(members: Mapping[str, YamlValue]) -> list[dict[str, YamlValue]]:
    found = members.get(_ACCOUNTS)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _next_version(members: dict[str, YamlValue], now_ms: int) -> dict[str, YamlValue]:
    counter = _Reading("").version(members.get(_VERSION), 0).counter + 1
    return {**members, _VERSION: [{"counter": str(counter), "timestamp": str(now_ms)}]}


def _check_keys(access_key: str | None, secret_key: str | None) -> None:
    if min(len(access_key or ""), len(secret_key or "")) < KEY_CHARS_MIN:
        # The stock text shows the secret key.
        raise ValueError(
            f"The accessKey={access_key} and secretKey={'***' if secret_key else secret_key}"
            f" cannot be null and length should longer than {KEY_CHARS_MIN - 1}"
        )


# --- reading ---


@dataclass(frozen=True, slots=True)
class _Reading:
    """A file being read: turns what is wrong into errors that name it."""

    path: str

    def error(self, where: str, reason: str, hint: str | None = None) -> ConfigError:
        place = f"{self.path}: {where}" if where else self.path
        return ConfigError(place, reason, hint=hint)

    def check_known(self, members: Iterable[str], known: tuple[str, ...], where: str) -> None:
        for name in members:
            if name not in known:
                near = nearest_word(name, known)
                advice = f"; did you mean {near}?" if near else ""
                raise self.error(where, f"{name!r} is not a known member{advice}")

    def entries(self, value: YamlValue, where: str) -> list[dict[str, YamlValue]]:
        entries = self._list(value, where)
        for number, entry in enumerate(entries, 1):
            if not isinstance(entry, dict):
                raise self.error(f"{where}, entry {number}", "is not a mapping")
        return [entry for entry in entries if isinstance(entry, dict)]

    def texts(self, value: YamlValue, where: str) -> list[str | None]:
        texts = self._list(value, where)
        for number, text in enumerate(texts, 1):
            if not (text is None or isinstance(text, str)):
                raise self.error(f"{where}, entry {number}", "is not a text")
        return [text for text in texts if text is None or isinstance(text, str)]

    def _list(self, value: YamlValue, where: str) -> list[YamlValue]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(where, "is not a list", "begin each entry with `- `")
        return value

    def white_list(self, text: str | None, where: str) -> WhiteList:
        try:
            return WhiteList(text)
        except ValueError as exc:
            raise self.error(where, str(exc), "the forms are listed in docs/access.md") from None

    def account(self, members: Mapping[str, YamlValue], where: str) -> Account:
        access_key = self._text(members, "accessKey", where)
        if access_key:
            where = f"{where} ({access_key})"
        self.check_known(members, _ACCOUNT_MEMBERS, where)
        secret_key = self._text(members, "secretKey", where)
        try:
            _check_keys(access_key, secret_key)
        except ValueError as exc:
            raise self.error(where, str(exc), "write longer keys") from None
        assert access_key is not None
        assert secret_key is not None
        return Account(
            access_key=access_key,
            secret_key=secret_key,
            white_list=self.white_list(self._text(members, "whiteRemoteAddress", where), where),
            is_admin=self._flag(members, "admin", where),
            default_topic_permission=self._permission(members, "defaultTopicPerm", where),
            default_group_permission=self._permission(members, "defaultGroupPerm", where),
            permissions={
                **{
                    retry_topic(group): owned
                    for group, owned in self._resources(members, "groupPerms", where)
                },
                **dict(self._resources(members, "topicPerms", where)),
            },
        )

    def version(self, value: YamlValue, changed_ms: int) -> DataVersion:
        first = next(iter(self.entries(value, _VERSION)), None)
        if first is None:
            return DataVersion(timestamp=changed_ms, counter=0)
        try:
            return DataVersion(
                timestamp=int(self._text(first, "timestamp", _VERSION) or 0),
                counter=int(self._text(first, "counter", _VERSION) or 0),
            )
        except ValueError:
            raise self.error(_VERSION, "is not made of whole numbers", "remove it") from None

    def _text(self, members: Mapping[str, YamlValue], name: str, where: str) -> str | None:
        value = members.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self.error(where, f"{name} is not a text")

    def _flag(self, members: Mapping[str, YamlValue], name: str, where: str) -> bool:
        text = self._text(members, name, where) or ""
        try:
            return _FLAGS[text.lower()]
        except KeyError:
            raise self.error(where, f"{name}: {text!r} is neither true nor false") from None

    def _permission(self, members: Mapping[str, YamlValue], name: str, where: str) -> int:
        try:
            return permission_of(self._text(members, name, where))
        except ValueError as exc:
            raise self.error(where, f"{name}: {exc}") from None

    def _resources(
        self, members: Mapping[str, YamlValue], name: str, where: str
    ) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for text in self.texts(members.get(name), f"{where}, {name}"):
            try:
                found.append(resource_of(text or ""))
            except ValueError as exc:
                raise self.error(where, f"{name}: {exc}") from None
        return found
