"""Files of accounts: what they may say, what is wrong with them, and how requests change them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.access.document import (
    AccountChange,
    Document,
    format_document,
    read_document,
    with_account,
    with_white_lists,
    without_account,
)
from rmq.access.permissions import DENY, PUB, SUB
from rmq.errors import ConfigError
from rmq.remoting.bodies import DataVersion
from rmq.settings.yaml_file import parse_yaml
from tests.access.access_kit import ACL, NOW_MS

if TYPE_CHECKING:
    from rmq.settings.yaml_file import YamlValue

STOCK_FILE = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def read(text: str) -> Document:
    return read_document(parse_yaml(text, "plain_acl.yml"), "plain_acl.yml", 77)


def test_the_file_that_rocketmq_ships_is_read() -> None:
    document = read(STOCK_FILE)
    assert [each.text for each in document.white_lists] == ["10.10.103.*", "192.168.0.*"]
    user, admin = document.accounts
    assert (user.access_key, user.secret_key, user.is_admin) == ("RocketMQ", "12345678", False)
    assert (user.default_topic_permission, user.default_group_permission) == (DENY, SUB)
    assert user.permissions == {
        "topicA": DENY,
        "topicB": PUB | SUB,
        "topicC": SUB,
        "%RETRY%groupA": DENY,
        "%RETRY%groupB": PUB | SUB,
        "%RETRY%groupC": SUB,
    }
    assert user.white_list.is_empty
    assert (admin.is_admin, admin.permissions, admin.default_topic_permission) == (True, {}, DENY)
    assert admin.white_list.text == "192.168.1.*"


def test_a_file_without_a_version_has_that_of_its_last_change() -> None:
    assert read(STOCK_FILE).version == DataVersion(timestamp=77, counter=0)
    told = read(STOCK_FILE + "dataVersion:\n- counter: 3\n  timestamp: 5\n")
    assert told.version == DataVersion(timestamp=5, counter=3)


@pytest.mark.parametrize(("word", "is_admin"), [("true", True), ("Yes", True), ("off", False)])
def test_flags_may_be_written_as_yaml_writes_them(word: str, is_admin: bool) -> None:
    assert (
        read(STOCK_FILE.replace("admin: true", f"admin: {word}")).accounts[1].is_admin == is_admin
    )


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("accounts:", "acounts:", ": 'acounts' is not a known member; did you mean accounts?"),
        (
            "    topicPerms:",
            "    topicPerm:",
            ": accounts, entry 1 (RocketMQ): 'topicPerm' is not a known member; did you mean"
            " topicPerms?",
        ),
        (
            "secretKey: 12345678",
            "secretKey: 123456",
            ": accounts, entry 1 (RocketMQ): The accessKey=RocketMQ and secretKey=*** cannot be"
            " null and length should longer than 6",
        ),
        (
            "accessKey: rocketmq2",
            "accessKey:",
            ": accounts, entry 2: The accessKey=None and secretKey=*** cannot be null and length"
            " should longer than 6",
        ),
        (
            "defaultTopicPerm: DENY",
            "defaultTopicPerm: NONE",
            ": accounts, entry 1 (RocketMQ): defaultTopicPerm: 'NONE' is not one of DENY, PUB, SUB,"
            " PUB|SUB, SUB|PUB",
        ),
        (
            "topicC=SUB",
            "topicC:SUB",
            ": accounts, entry 1 (RocketMQ): topicPerms: 'topicC:SUB' is not of the form name=PERM",
        ),
        (
            "192.168.1.*",
            "192.168.1.x",
            ": accounts, entry 2 (rocketmq2): Netaddress examine Exception netaddress is"
            " 192.168.1.x",
        ),
        (
            "- 192.168.0.*",
            "- 192.168.0.300-*",
            ": globalWhiteRemoteAddresses: Netaddress examine scope Exception netaddress is"
            " 192.168.0.300-*",
        ),
        (
            "admin: false",
            "admin: maybe",
            ": accounts, entry 1 (RocketMQ): admin: 'maybe' is neither true nor false",
        ),
        ("admin: false", "admin: [a]", ": accounts, entry 1 (RocketMQ): admin is not a text"),
        (
            "whiteRemoteAddress:\n",
            "whiteRemoteAddress: {a: b}\n",
            ": accounts, entry 1 (RocketMQ): whiteRemoteAddress is not a text",
        ),
        ("  - 10.10.103.*", "  - [a]", ": globalWhiteRemoteAddresses, entry 1: is not a text"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_account(old: str, new: str, wrong: str) -> None:
    assert old in STOCK_FILE
    with pytest.raises(ConfigError) as caught:
        read(STOCK_FILE.replace(old, new, 1))
    assert caught.value.text == f"plain_acl.yml{wrong}"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("accounts: 5", "accounts: is not a list"),
        ("accounts: [5]", "accounts, entry 1: is not a mapping"),
        ("globalWhiteRemoteAddresses: 10.0.0.1", "globalWhiteRemoteAddresses: is not a list"),
        ("dataVersion: [{counter: x}]", "dataVersion: is not made of whole numbers"),
    ],
)
def test_a_file_of_another_shape_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert caught.value.text == f"plain_acl.yml: {wrong}"


# --- changes -------------------------------------------------------------------------------------

CHANGE = AccountChange(
    access_key="newcomer",
    secret_key="newcomers",
    white_remote_address=None,
    is_admin=False,
    default_topic_perm=None,
    default_group_perm="SUB",
    topic_perms=("T=PUB",),
    group_perms=None,
)


def members() -> dict[str, YamlValue]:
    return parse_yaml(ACL, "")


def document_of(changed: dict[str, YamlValue]) -> Document:
    return read(format_document(changed))


def test_a_new_account_comes_last_and_the_version_counts() -> None:
    document = document_of(with_account(members(), CHANGE, NOW_MS))
    assert [each.access_key for each in document.accounts] == ["the-admin", "the-user", "newcomer"]
    assert document.accounts[2].permissions == {"T": PUB}
    assert document.version == DataVersion(timestamp=NOW_MS, counter=1)
    again = with_account(with_account(members(), CHANGE, 1), CHANGE, 2)
    assert document_of(again).version == DataVersion(timestamp=2, counter=2)


def test_of_an_account_that_is_there_stays_what_is_not_mentioned() -> None:
    change = replace(CHANGE, access_key="the-user", topic_perms=None, default_group_perm="")
    document = document_of(with_account(members(), change, NOW_MS))
    before, after = read(ACL).accounts[1], document.accounts[1]
    assert after == replace(before, secret_key="newcomers", white_list=after.white_list)
    assert after.white_list.text == before.white_list.text == "192.168.7.7"
    cleared = replace(change, white_remote_address="", group_perms=("g=SUB",))
    account = document_of(with_account(members(), cleared, NOW_MS)).accounts[1]
    assert account.white_list.is_empty
    assert "%RETRY%shut" not in account.permissions


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (
            replace(CHANGE, access_key="short"),
            "The accessKey=short and secretKey=*** cannot be null and length should longer than 6",
        ),
        (
            replace(CHANGE, secret_key=None),
            "The accessKey=newcomer and secretKey=None cannot be null and length should longer"
            " than 6",
        ),
        (
            replace(CHANGE, topic_perms=("T",)),
            "Parse Resource format error for T.\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB",
        ),
        (
            replace(CHANGE, group_perms=("",)),
            "Parse Resource format error for .\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB",
        ),
        (
            replace(CHANGE, white_remote_address="nowhere"),
            "Netaddress examine Exception netaddress is nowhere",
        ),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(change: AccountChange, wrong: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(wrong)}$"):
        with_account(members(), change, NOW_MS)


def test_an_account_is_removed_once() -> None:
    changed = without_account(members(), "the-user", NOW_MS)
    assert changed is not None
    assert [each.access_key for each in document_of(changed).accounts] == ["the-admin"]
    assert without_account(changed, "the-user", NOW_MS) is None


def test_the_white_list_is_replaced() -> None:
    changed = with_white_lists(members(), ["10.0.0.1", "*"], NOW_MS)
    document = document_of(changed)
    assert [each.text for each in document.white_lists] == ["10.0.0.1", "*"]
    assert len(document.accounts) == 2
    with pytest.raises(ValueError, match="Netaddress examine Exception netaddress is x"):
        with_white_lists(members(), ["x"], NOW_MS)


def test_a_changed_file_is_written_as_stock_brokers_read_it() -> None:
    assert format_document(with_account(members(), CHANGE, NOW_MS)).endswith(
        """\
- accessKey: newcomer
  secretKey: newcomers
  admin: false
  defaultGroupPerm: SUB
  topicPerms:
  - T=PUB
dataVersion:
- counter: 1
  timestamp: 1700000000000
"""
    )


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")), min_size=7)


@given(TEXTS, TEXTS, st.booleans())
def test_every_key_and_secret_is_read_as_it_was_written(
    access_key: str, secret_key: str, is_admin: bool
) -> None:
    change = replace(
        CHANGE, access_key=access_key, secret_key=secret_key, is_admin=is_admin, topic_perms=None
    )
    try:
        text = format_document(with_account({}, change, NOW_MS))
        (account,) = read(text).accounts
    except ConfigError as exc:
        # Characters that YAML files may not hold.
        assert "control character" in str(exc)  # noqa: PT017
        return
    assert (account.access_key, account.secret_key) == (access_key, secret_key)
    assert account.is_admin == is_admin
