"""The quick check of requests that are alike says yes only where the whole check says so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.access.document import read_document
from rmq.access.needs import NEEDS
from rmq.access.rules import AccessRefusedError, Rules
from rmq.access.signed_texts import NAMES_MAX, SignedTexts
from rmq.errors import ProtocolError
from rmq.remoting.codes import RequestCode
from rmq.remoting.command import decode_header, whole_header_decoder
from rmq.remoting.headers import SendMessageRequestV2
from rmq.remoting.signing import SIGNATURE, signature_of
from rmq.settings.yaml_file import parse_yaml
from tests.access.access_kit import ACL, ADMIN, STRANGER, USER

if TYPE_CHECKING:
    from rmq.remoting.command import Command
    from rmq.remoting.signing import Credentials

HERE: Final = "192.0.2.7:40000"
V2: Final = RequestCode.SEND_MESSAGE_V2
PULL: Final = RequestCode.PULL_MESSAGE
MAX_OFFSET: Final = RequestCode.GET_MAX_OFFSET
_whole = whole_header_decoder(SendMessageRequestV2)
_PLAIN: Final = {"a": "p", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}


def rules_of(text: str = ACL) -> Rules:
    document = read_document(parse_yaml(text, "plain_acl.yml"), "plain_acl.yml", 0)
    return Rules(document.accounts, document.white_lists)


def verdict(rules: Rules, command: Command) -> str:
    try:
        rules.check(HERE, command)
    except AccessRefusedError as exc:
        return exc.reason
    return "let in"


def decoded(code: int, ext: str, body: bytes | None, *, at_once: bool) -> Command:
    """Return a command as the frame decoder makes it, of the first of its kind or a later one."""
    header = f'{{"code":{code},"extFields":{ext},"flag":0,"opaque":1}}'.encode(
        "utf-8", "surrogatepass"
    )
    command = decode_header(header, 0)
    if at_once:
        try:
            whole = _whole(header)
        except Exception:  # noqa: BLE001 - the decoder then does what was done above
            pass
        else:
            whole.binary_ext, whole.raw_header = None, header
            command = whole
    command.body = body
    return command


def signed_ext(
    credentials: Credentials, fields: dict[str, str], body: bytes | None
) -> dict[str, str]:
    fields = {**fields, "AccessKey": credentials.access_key}
    return {**fields, SIGNATURE: signature_of(fields, body, credentials.secret_key)}


def escaped(text: str) -> str:
    return '"' + "".join(f"\\u{ord(each):04x}" for each in text) + '"'


# --- what a request may look like ----------------------------------------------------------------

TEXTS: Final = st.sampled_from(["", "0", "04", "Orders", "Nothing", "Both", "x", "é", "\x01", '"'])
NAMES: Final = st.sampled_from(
    ["i", "j", "b", "n", "zz", "topic", "consumerGroup", "_UNIQUE_KEY_QUERY", "a b", 'q"', "é"]
)
CODES: Final = st.sampled_from([V2, PULL, MAX_OFFSET, RequestCode.UPDATE_AND_CREATE_TOPIC])
CHANGES: Final = st.sampled_from(
    [
        "none",
        "value",
        "name more",
        "name less",
        "twice",
        "null",
        "number",
        "escaped",
        "order",
        "key",
    ]
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, str, bytes | None, bool]:
    """Draw a request that is signed, and maybe changed afterwards."""
    fields = {**_PLAIN, "b": draw(st.sampled_from(["Orders", "Both", "Nothing"]))}
    fields |= draw(st.dictionaries(NAMES, TEXTS, max_size=3))
    body = draw(st.sampled_from([None, b"", b"hello"]))
    credentials = draw(st.sampled_from([USER, USER, ADMIN, STRANGER]))
    ext = signed_ext(credentials, fields, body)
    change = draw(CHANGES)
    name = draw(st.sampled_from(sorted(ext)))
    members: list[tuple[str, Any]] = list(ext.items())
    if change == "order":
        members = draw(st.permutations(members))
    elif change == "twice":
        members.append((name, draw(TEXTS)))
    elif change == "name more":
        members.append((draw(NAMES), draw(TEXTS)))
    elif change == "name less":
        members = [each for each in members if each[0] != name]
    elif change in ("value", "null", "number"):
        other = {"value": draw(TEXTS), "null": None, "number": 4}[change]
        members = [(each, other if each == name else text) for each, text in members]
    write = escaped if change == "escaped" else json.dumps
    shown = [f"{write(each)}:{json.dumps(text)}" for each, text in members]
    return draw(CODES), "{" + ",".join(shown) + "}", body, draw(st.booleans())


@given(st.lists(requests(), min_size=1, max_size=8))
def test_rules_that_have_seen_much_say_what_those_say_that_have_seen_nothing(
    drawn: list[tuple[int, str, bytes | None, bool]],
) -> None:
    experienced = rules_of()
    for known in (V2, PULL, MAX_OFFSET):
        fields = {**_PLAIN, "b": "Orders", "topic": "Both", "consumerGroup": "mine"}
        command = decoded(
            known, json.dumps(signed_ext(USER, fields, None)), None, at_once=known == V2
        )
        assert verdict(experienced, command) == "let in"
    for code, ext, body, at_once in [*drawn, *drawn]:
        try:
            command = decoded(code, ext, body, at_once=at_once)
        except ProtocolError:
            continue
        assert verdict(experienced, command) == verdict(rules_of(), command)


# --- what is known -------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False])
def test_a_request_like_one_before_is_read_in_one_pass(at_once: bool) -> None:
    rules = rules_of()
    text = json.dumps(signed_ext(USER, {**_PLAIN, "b": "Orders", "new": "1"}, b"x"))
    command = decoded(V2, text, b"x", at_once=at_once)
    # The first one is checked in full, and makes its fields known; so does a new field.
    assert [verdict(rules, command) for _ in range(3)] == ["let in"] * 3
    (texts,) = rules._texts.values()
    assert "new" in texts.names
    assert rules._is_as_before(texts, command)
    for reject in (b"y", None):
        command.body = reject
        assert not rules._is_as_before(texts, command)
        assert verdict(rules, command) == "Check signature failed for accessKey=the-user"


def test_a_permission_is_not_taken_from_another_account_topic_or_request() -> None:
    rules = rules_of()
    for topic, expected in (
        ("Orders", "let in"),
        ("Nothing", "No default permission for topic:Nothing"),
        ("Other", "No default permission for topic:Other"),
    ):
        ext = json.dumps(signed_ext(USER, {**_PLAIN, "b": topic}, None))
        for _ in range(3):
            assert verdict(rules, decoded(V2, ext, None, at_once=True)) == expected
    # It may send to Orders, but not read it.
    query = RequestCode.QUERY_MESSAGE
    for topic, expected in (
        ("Both", "let in"),
        ("Orders", "No default permission for topic:Orders"),
        ("Both", "let in"),
    ):
        ext = json.dumps(signed_ext(USER, {"topic": topic, "key": "k"}, None))
        assert verdict(rules, decoded(query, ext, None, at_once=False)) == expected


@pytest.mark.parametrize("name", ["new", "n", "_UNIQUE_KEY_QUERY"])
def test_a_field_that_is_added_to_what_was_signed_is_noticed(name: str) -> None:
    rules = rules_of()
    ext = signed_ext(USER, {**_PLAIN, "b": "Orders"}, None)
    for _ in range(3):
        assert verdict(rules, decoded(V2, json.dumps(ext), None, at_once=True)) == "let in"
    # Nothing is added to what is signed by the last one, which is left out of it, or is empty.
    expected = "Check signature failed for accessKey=the-user"
    for value, refusal in ((name, expected), ("", "let in")):
        changed = decoded(V2, json.dumps({**ext, name: value}), None, at_once=True)
        is_left_out = name.startswith("_") and "let in"
        assert verdict(rules, changed) == (is_left_out or refusal)


def test_nothing_is_known_of_requests_that_were_not_signed_rightly() -> None:
    rules = rules_of()
    for number in range(3):
        ext = signed_ext(STRANGER, {**_PLAIN, "b": "Orders", f"n{number}": "1"}, None)
        assert verdict(rules, decoded(V2, json.dumps(ext), None, at_once=True)) != "let in"
    assert rules._texts == {}


def test_so_many_fields_are_known_and_no_more() -> None:
    rules = rules_of()
    for number in range(NAMES_MAX + 5):
        ext = signed_ext(USER, {**_PLAIN, "b": "Orders", f"n{number}": "1"}, None)
        assert verdict(rules, decoded(V2, json.dumps(ext), None, at_once=True)) == "let in"
    assert len(rules._texts[V2].names) == NAMES_MAX


@pytest.mark.parametrize("name", ["_UNIQUE_KEY_QUERY", 'a"b', "a\\b", "\x01", "é", "n" * 65])
def test_fields_that_cannot_be_known_are_read_with_care(name: str) -> None:
    texts = SignedTexts(["topic"])
    assert texts.knowing([name]) is None
    assert texts.knowing(["queueId"]) is not None


def test_the_fields_that_a_need_names_say_all_that_it_looks_at() -> None:
    """What is remembered of a request is worth nothing if something else decides, too."""
    others = {"topic": "T", "b": "T", "consumerGroup": "G", "group": "G", "x": "y"}
    for code, need in NEEDS.items():
        if need.resources is None or not need.is_told_by_fields:
            continue
        named = dict.fromkeys(need.fields, "named")
        expected = need.resources(named, None)
        assert need.resources({**others, **named}, b"body") == expected, RequestCode(code)
    told = {code for code, need in NEEDS.items() if need.is_told_by_fields}
    assert told.isdisjoint({RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ})
    assert not any(NEEDS[code].is_admin for code in told)
