"""YAML files are read as text, and what could do harm is refused with the line and no value."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import yaml

from rmq.errors import ConfigError
from rmq.settings import yaml_file
from rmq.settings.yaml_file import DEPTH_MAX, parse_yaml, read_yaml

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["c", "python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with the parser in C, which may be missing, and with the one in Python."""
    if request.param == "python":
        monkeypatch.setattr(yaml_file, "_LOADER", yaml.SafeLoader)
    elif not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")


PLAIN_ACL = """\
# The file that RocketMQ ships.
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    topicPerms:
      - topicA=DENY
      - 'topicB=PUB|SUB'
    groupPerms: [groupA=DENY]
"""


def test_the_file_of_stock_brokers_reads_as_text() -> None:
    assert parse_yaml(PLAIN_ACL, "plain_acl.yml") == {
        "globalWhiteRemoteAddresses": ["10.10.103.*", "192.168.0.*"],
        "accounts": [
            {
                "accessKey": "RocketMQ",
                "secretKey": "12345678",
                "whiteRemoteAddress": None,
                "admin": "false",
                "topicPerms": ["topicA=DENY", "topicB=PUB|SUB"],
                "groupPerms": ["groupA=DENY"],
            }
        ],
    }


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0123", "0123"),
        ("0x10", "0x10"),
        ("1.10", "1.10"),
        ("yes", "yes"),
        ("2026-01-02", "2026-01-02"),
        ("!!str 12", "12"),
        ("'null'", "null"),
        ('""', ""),
        ("~", None),
        ("null", None),
        ("", None),
    ],
)
def test_scalars_are_the_text_that_stands_there(written: str, value: str | None) -> None:
    assert parse_yaml(f"key: {written}\n", "f") == {"key": value}


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "--- ~\n"])
def test_an_empty_file_has_no_members(text: str) -> None:
    assert parse_yaml(text, "f") == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("a: &x 1\nb: 2", "line 1 has an anchor", id="anchor"),
        pytest.param("a: 1\nb: *a", "line 2 uses an alias", id="alias"),
        pytest.param("a: !!python/object:os.x {}", "line 1 has a tag", id="tag"),
        pytest.param("!!map {a: 1}", "line 1 has a tag", id="tag of all"),
        pytest.param("a: 1\nb:\n  c: 1\n  c: 2", "line 4 has the key 'c' again", id="twice"),
        pytest.param("? [a]\n: 1", "line 1 has a key that is not text", id="list as key"),
        pytest.param("a: 1\n~: 2", "line 2 has a key that is not text", id="null as key"),
        pytest.param("a: 1\n---\nb: 2", "line 2 begins a second document", id="documents"),
        pytest.param("- 1", "line 1 is not a mapping", id="list"),
        pytest.param("\nwords", "line 2 is not a mapping", id="text"),
        pytest.param("a: 1\nb: \x1b", "line 2 holds a control character", id="control"),
        pytest.param("a: 1\n\tb: 2", "line 2 is not YAML", id="tab"),
        pytest.param("a: b: c", "line 1 is not YAML", id="colon"),
    ],
)
def test_what_could_do_harm_is_refused_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_yaml(text, "conf/tools.yml")
    assert caught.value.key == "conf/tools.yml"
    assert caught.value.hint


def test_nesting_has_a_limit() -> None:
    def nested(depth: int) -> str:
        return "a: " + "[" * (depth - 1) + "]" * (depth - 1)

    assert "a" in parse_yaml(nested(DEPTH_MAX), "f")
    with pytest.raises(ConfigError, match=f"nested more than {DEPTH_MAX} deep"):
        parse_yaml(nested(DEPTH_MAX + 1), "f")
    with pytest.raises(ConfigError, match=f"nested more than {DEPTH_MAX} deep"):
        parse_yaml("{a: " * 100_000, "f")


def test_errors_show_no_value() -> None:
    for text in ("secretKey: hunter2: x", "secretKey: hunter2\n\t", 'secretKey: "hunter2'):
        with pytest.raises(ConfigError) as caught:
            parse_yaml(text, "f")
        seen: BaseException | None = caught.value
        while seen is not None:
            assert "hunter2" not in str(seen)
            seen = seen.__cause__


def test_a_file_is_read_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text("accessKey: é\n", "utf-8-sig")
    assert read_yaml(path) == {"accessKey": "é"}
    path.write_text("accessKey: é\n", "utf-8")
    assert read_yaml(path) == {"accessKey": "é"}


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    with pytest.raises(ConfigError, match=r"tools\.yml: does not exist"):
        read_yaml(path)
    with pytest.raises(ConfigError, match="is not a file"):
        read_yaml(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is not a file"):
        read_yaml(tmp_path / "pipe")
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match="line 2 is not UTF-8"):
        read_yaml(path)
    path.write_bytes(b"#" * 101)
    with pytest.raises(ConfigError, match="has more than 100 bytes"):
        read_yaml(path, bytes_max=100)
