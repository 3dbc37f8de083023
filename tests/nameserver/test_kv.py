"""The KV config as a value, and the text of its file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import ProtocolError, RefusedError
from rmq.nameserver import kv
from rmq.nameserver.kv import KvTable
from rmq.remoting.codes import ResponseCode
from tests.stepping import finish

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def table_of(**namespaces: dict[str, str]) -> KvTable:
    table = KvTable()
    for namespace, values in namespaces.items():
        for key, value in values.items():
            table.put(namespace, key, value)
    return table


def test_a_value_is_read_under_its_namespace_and_key_only() -> None:
    table = table_of(n={"k": "v"})
    assert table.get("n", "k") == "v"
    assert table.get("n", "x") is None
    assert table.get("x", "k") is None


def test_put_and_delete_tell_whether_anything_changed() -> None:
    table = KvTable()
    assert table.put("n", "k", "v")
    assert not table.put("n", "k", "v")
    assert table.put("n", "k", "w")
    assert not table.delete("x", "k")
    assert table.delete("n", "k")
    assert not table.delete("n", "k")


def test_a_namespace_is_encoded_as_a_table_and_again_after_a_change() -> None:
    table = table_of(n={"k": "v"})
    assert finish(table.encoded("n")) == b'{"table":{"k":"v"}}'
    assert finish(table.encoded("n")) is finish(table.encoded("n"))
    table.put("n", "k", "w")
    assert finish(table.encoded("n")) == b'{"table":{"k":"w"}}'
    assert finish(table.encoded("unknown")) is None


def test_a_namespace_whose_last_key_is_deleted_is_empty_not_unknown() -> None:
    table = table_of(n={"k": "v"})
    table.delete("n", "k")
    assert finish(table.encoded("n")) == b'{"table":{}}'
    assert finish(KvTable.parse(table.render()).encoded("n")) == b'{"table":{}}'


def test_the_file_has_the_shape_of_the_original() -> None:
    table = table_of(ORDER_TOPIC_CONFIG={"T": "broker-a:4;broker-b:4"}, n={"k": "v"})
    assert table.render() == (
        '{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4;broker-b:4"},"n":{"k":"v"}}}'
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param('{"configTable":{"n":{"k":"v"}}}', "v", id="compact"),
        pytest.param('{\n\t"configTable":{\n\t\t"n":{"k":"v"\n\t\t}\n\t}\n}', "v", id="pretty"),
        pytest.param("{configTable:{n:{k:'v'}}}", "v", id="loose"),
        pytest.param('{"configTable":{"n":{"k":5}}}', "5", id="number"),
        pytest.param('{"other":1,"configTable":{"n":{"k":"v"}}}', "v", id="more members"),
        pytest.param("{}", None, id="nothing"),
        pytest.param('{"configTable":null}', None, id="null"),
    ],
)
def test_what_java_would_read_is_read(text: str, value: str | None) -> None:
    assert KvTable.parse(text).get("n", "k") == value


@pytest.mark.parametrize(
    "text", ["[]", "{", "kvConfig", '{"configTable":{"n":["k"]}}', '{"configTable":"x"}']
)
def test_what_is_no_kv_config_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        KvTable.parse(text)


def test_a_copy_is_a_table_of_its_own() -> None:
    table = table_of(n={"k": "v"})
    copy = table.copy()
    copy.put("n", "k", "w")
    copy.put("m", "k", "v")
    assert table.get("n", "k") == "v"
    assert finish(table.encoded("n")) == b'{"table":{"k":"v"}}'
    assert finish(table.encoded("m")) is None


def test_a_full_table_refuses_more_and_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "CHARS_MAX", 10)
    table = table_of(n={"k": "12345678"})  # ten characters
    for edit in (("n", "k", "123456789"), ("n", "l", ""), ("m", "k", "v")):
        with pytest.raises(RefusedError, match="the limit of 10") as refusal:
            table.put(*edit)
        assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert table.put("n", "k", "x")
    assert table.put("n", "l", "123456")
    assert table.delete("n", "k")
    assert table.put("n", "m", "1")


def test_one_value_one_name_and_their_numbers_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "VALUES_MAX", 2)
    monkeypatch.setattr(kv, "NAMESPACES_MAX", 2)
    monkeypatch.setattr(kv, "ORDER_CHARS_MAX", 25)
    table = table_of(n={"k": "v"}, ORDER_TOPIC_CONFIG={"T": "a:4"})
    for edit, reason in (
        (("n", "k", "v" * 65_537), "a value of 65537 characters; the limit for one is 65536"),
        (("n", "k" * 1025, "v"), "is longer than 1024 characters"),
        (("n", "a\nb", "v"), "contains control characters"),
        (("a\x00", "k", "v"), "contains control characters"),
        (("n", "l", "v"), "holds 2 values, the limit"),
        (("ORDER_TOPIC_CONFIG", "T", "a:4;b:4;c:4"), "ORDER_TOPIC_CONFIG holds 22 characters"),
    ):
        with pytest.raises(RefusedError, match=reason):
            table.put(*edit)
    assert table.put("n", "k", "v" * 65_536)
    assert table.delete("n", "k")
    with pytest.raises(RefusedError, match="has 2 namespaces, the limit"):
        table.put("m", "k", "v")


@given(
    st.lists(
        st.tuples(st.sampled_from("nm"), st.sampled_from("kl"), texts | st.none()), max_size=20
    )
)
def test_any_history_reads_back_as_a_dict_would(
    edits: list[tuple[str, str, str | None]],
) -> None:
    table = KvTable()
    model: dict[str, dict[str, str]] = {}
    for namespace, key, value in edits:
        values = model.setdefault(namespace, {}) if value is not None else model.get(namespace, {})
        before = values.get(key)
        if value is None:
            values.pop(key, None)
            assert table.delete(namespace, key) == (before is not None)
        else:
            values[key] = value
            assert table.put(namespace, key, value) == (before != value)
    for again in (table, KvTable.parse(table.render())):
        assert json.loads(again.render()) == {"configTable": model}
        assert len(again) == sum(map(len, model.values()))
        assert again._chars == sum(
            len(namespace) + sum(len(key + value) for key, value in values.items())
            for namespace, values in model.items()
        )
