"""Settings files: changed values are written so that they read back, and nothing else is touched.

How lines are read is shown by tests/remoting/bodies/test_properties_text.py, whose reader this is.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmq.settings.properties_file import format_member, read_members, with_changes

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KEY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
FILE_TEXT = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            "=",
            ":",
            " ",
            "\t",
            "\f",
            "\\",
            "\n",
            "\r",
            "\r\n",
            "#",
            "!",
            "1",
            "\\u0061",
            "ü",
        ]
    ),
    max_size=24,
).map("".join)


def read(text: str) -> dict[str, str]:
    return {member.key: member.value for member in read_members(text) if member.problem is None}


@given(key=TEXT, value=TEXT)
@example(key="#", value=" \\")
@example(key="a b=:", value="\N{GRINNING FACE}\n")
def test_a_written_member_reads_back(key: str, value: str) -> None:
    line = format_member(key, value)
    assert line.isascii()
    assert [(member.key, member.value) for member in read_members(line)] == [(key, value)]


@given(text=FILE_TEXT, changes=st.dictionaries(st.sampled_from(["a", "b", "c", "ab"]), TEXT))
@example(text="a=1\\", changes={"c": "2"})
@example(text="a=1\\\n", changes={"c": "2"})
@example(text="a\\\nb=1", changes={"ab": "2"})
@example(text="a=1\r#b\\", changes={"c": "2"})
@example(text="a", changes={"a": "= "})
@example(text="a ", changes={"a": "="})
@example(text="\n\\\r", changes={"a": ""})
def test_changes_are_made_and_the_rest_means_what_it_meant(
    text: str, changes: dict[str, str]
) -> None:
    assert read(with_changes(text, changes)) == {**read(text), **changes}


@given(text=FILE_TEXT)
def test_what_is_the_case_already_changes_nothing(text: str) -> None:
    assert with_changes(text, read(text)) == text
    assert with_changes(text, {}) == text


def test_comments_order_layout_and_line_ends_stay() -> None:
    text = (
        "# the cluster\r\n"
        "brokerName = broker-a\r\n"
        "\r\n"
        "  listenPort: 10911\r\n"
        "fileReservedTime 48\r\n"
        "messageDelayLevel=1s \\\r\n"
        "    5s\r\n"
        "! last"
    )
    changed = with_changes(
        text,
        {
            "messageDelayLevel": "2s",
            "listenPort": "10921",
            "fileReservedTime": "24",
            "brokerName": "broker-a",
            "brokerId": "0",
        },
    )
    assert changed == (
        "# the cluster\r\n"
        "brokerName = broker-a\r\n"
        "\r\n"
        "  listenPort: 10921\r\n"
        "fileReservedTime 24\r\n"
        "messageDelayLevel=2s\r\n"
        "! last\r\n"
        "brokerId=0\r\n"
    )


def test_of_several_lines_for_a_key_the_last_is_changed_because_it_counts() -> None:
    assert with_changes("a=1\na=2\n", {"a": "3"}) == "a=1\na=3\n"
    assert with_changes("a=1\na=2\n", {"a": "2"}) == "a=1\na=2\n"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param("C:\\store", r"a=C:\\store", id="backslashes"),
        pytest.param("  x ", r"a=\  x ", id="a blank in front"),
        pytest.param("ü", r"a=\u00FC", id="beyond ASCII, which Java would read as ISO 8859-1"),
        pytest.param("1\n2", r"a=1\n2", id="a line end"),
    ],
)
def test_special_characters_are_escaped(value: str, written: str) -> None:
    assert format_member("a", value) == written


def test_a_line_java_cannot_read_is_told_with_its_number_and_left_alone() -> None:
    text = "a=1\nb=\\u12\n"
    assert [member.problem for member in read_members(text)] == [
        None,
        r"\u without four hexadecimal digits",
    ]
    assert with_changes(text, {"a": "2"}) == "a=2\nb=\\u12\n"
