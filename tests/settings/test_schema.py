"""Settings: each value is checked, every mistake is named with its place, all of them at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import ConfigError
from rmq.settings.properties_file import format_member
from rmq.settings.schema import (
    ADVICES_MAX,
    INT_MAX,
    LONG_MAX,
    Effect,
    Kind,
    Rule,
    Schema,
    Setting,
    SettingsError,
    Value,
    Values,
    change,
    decode_settings,
    format_value,
    load,
)


def _refuse_odd(text: str) -> None:
    if int(text) % 2:
        raise ConfigError("even", f"{text} is odd")


def _role_effect(old: Value, new: Value) -> Effect:
    return Effect.RESTART if "SLAVE" in (old, new) else Effect.NOW


SCHEMA = Schema(
    [
        Setting(key="name", default="n", help="", effect=Effect.NOW, important=True),
        Setting(key="home", default=None, help=""),
        Setting(key="port", default=10911, help="", minimum=1, maximum=65_535),
        Setting(key="even", default=0, help="", check=_refuse_odd, effect=Effect.NOW),
        Setting(key="ratio", default=0.9, help="", minimum=0.01, maximum=1, effect=Effect.NOW),
        Setting(key="fast", default=True, help="", effect=Effect.NOW),
        Setting(
            key="role",
            default="MASTER",
            choices=("MASTER", "SYNC_MASTER", "SLAVE"),
            help="",
            effect=Effect.NOW,
            effect_between=_role_effect,
        ),
        Setting(key="threads", default=8, help="", effect=Effect.IGNORED),
        Setting(
            key="raft", default=False, help="", effect=Effect.IGNORED, refused="there is no raft"
        ),
        Setting(key="password", default=None, help="", secret=True),
    ],
    [
        Rule(
            keys=("even", "port"),
            check=lambda values: (
                "is above port" if values.integer("even") > values.integer("port") else None
            ),
        )
    ],
)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        pytest.param("name", "a b", "a b", id="a text"),
        pytest.param("name", "", "", id="no text"),
        pytest.param("home", "", None, id="no text where that means not set"),
        pytest.param("port", "09876", 9876, id="a number with a zero in front"),
        pytest.param("port", "+1", 1, id="a number with a sign"),
        pytest.param("port", "9876 ", 9876, id="a number with a blank behind"),
        pytest.param("ratio", "1", 1.0, id="a fraction without a point"),
        pytest.param("ratio", "5e-1", 0.5, id="a fraction with an exponent"),
        pytest.param("fast", "TRUE", True, id="a flag in capitals"),
        pytest.param("fast", "false", False, id="a flag"),
        pytest.param("role", "SLAVE", "SLAVE", id="a choice"),
        pytest.param("threads", "many", "many", id="anything where it means nothing"),
        pytest.param("raft", "False", False, id="the only value"),
    ],
)
def test_a_value_is_read_by_its_kind(key: str, text: str, value: Value) -> None:
    read = load(SCHEMA, format_member(key, text), "f").values[key]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        pytest.param("port", "", "'' is not a whole number", id="nothing"),
        pytest.param("name", "a\n\x00", "'a\\n\\x00' contains control characters", id="controls"),
        pytest.param("threads", "a\nb", "'a\\nb' contains control characters", id="even there"),
        pytest.param("port", "0x10", "'0x10' is not a whole number", id="hexadecimal"),
        pytest.param("port", "1_0", "'1_0' is not a whole number", id="underscores"),
        pytest.param("port", "٣", "'٣' is not a whole number", id="other digits"),
        pytest.param("port", "1.0", "'1.0' is not a whole number", id="a point"),
        pytest.param("port", "0", "0 is not between 1 and 65535", id="too small"),
        pytest.param("port", "65536", "65536 is not between 1 and 65535", id="too large"),
        pytest.param(
            "port", "9" * 5000, f"'{'9' * 5000}' is not a whole number", id="far too long"
        ),
        pytest.param("even", "3", "3 is odd", id="a check of its own"),
        pytest.param("ratio", "nan", "'nan' is not a number", id="not a number"),
        pytest.param("ratio", "0", "0.0 is not between 0.01 and 1", id="too small a fraction"),
        pytest.param("ratio", "1e999", "inf is not between 0.01 and 1", id="infinite"),
        pytest.param("fast", "yes", "'yes' is neither true nor false", id="no flag"),
        pytest.param(
            "role",
            "slave",
            "'slave' is not one of MASTER, SYNC_MASTER, SLAVE; did you mean SLAVE?",
            id="almost a choice",
        ),
        pytest.param(
            "role", "x", "'x' is not one of MASTER, SYNC_MASTER, SLAVE", id="nothing like a choice"
        ),
        pytest.param("raft", "true", "true: there is no raft", id="refused"),
        pytest.param("raft", "yes", "'yes' is neither true nor false", id="not even refused"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_place(key: str, text: str, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(SCHEMA, f"\n{format_member(key, text)}", "dir/broker.conf")
    assert str(caught.value) == f"dir/broker.conf:2: {key}: {reason}"
    assert caught.value.key == key
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("written", "near"),
    [
        pytest.param("Port", "port", id="capitals"),
        pytest.param("prot", "port", id="two letters swapped"),
        pytest.param("pasword", "password", id="a letter missing"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(written: str, near: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(SCHEMA, f"{written}=1", "f")
    assert str(caught.value) == f"f:1: {written}: is not a known setting; did you mean {near}?"


def test_a_key_like_no_other_is_only_named() -> None:
    with pytest.raises(SettingsError) as caught:
        load(SCHEMA, "xyz=1", "f")
    assert str(caught.value) == "f:1: xyz: is not a known setting"


def test_the_nearest_key_is_looked_for_a_few_times_only() -> None:
    with pytest.raises(SettingsError) as caught:
        change(SCHEMA, SCHEMA.defaults(), {f"port{number}": "1" for number in range(50_000)})
    reasons = [problem.reason for problem in caught.value.problems]
    assert len(reasons) == 50_000
    advice = "is not a known setting; did you mean port?"
    assert reasons[:ADVICES_MAX] == [advice] * ADVICES_MAX
    assert set(reasons[ADVICES_MAX:]) == {"is not a known setting"}


def test_everything_that_is_wrong_is_told_at_once() -> None:
    text = "port=x\n\nprot=1\neven=7\nfast=maybe\nhome=\\u12\n"
    with pytest.raises(SettingsError) as caught:
        load(SCHEMA, text, "f", overrides={"ratio": "2"})
    assert str(caught.value).splitlines() == [
        "f:1: port: 'x' is not a whole number",
        "f:3: prot: is not a known setting; did you mean port?",
        "f:4: even: 7 is odd",
        "f:5: fast: 'maybe' is neither true nor false",
        r"f:6: \u without four hexadecimal digits",
        "command line: ratio: 2.0 is not between 0.01 and 1",
    ]
    assert len(caught.value.problems) == 6


def test_a_contradiction_is_told_where_the_value_stands() -> None:
    with pytest.raises(SettingsError) as caught:
        load(SCHEMA, "port=4\nname=x\neven=6\n", "f")
    assert str(caught.value) == "f:3: even: is above port"
    with pytest.raises(SettingsError) as caught:
        load(SCHEMA, "port=4\n", "f", defaults={"even": 6})
    assert str(caught.value) == "f:1: even: is above port"


def test_a_contradiction_with_a_value_that_could_not_be_read_is_not_told() -> None:
    with pytest.raises(SettingsError) as caught:
        load(SCHEMA, "port=x\neven=20000\n", "f")
    assert str(caught.value) == "f:1: port: 'x' is not a whole number"


def test_the_command_line_counts_before_the_file_and_that_before_defaults() -> None:
    loaded = load(
        SCHEMA,
        "port=1\nname=file\n",
        "f",
        overrides={"port": "2"},
        defaults={"name": "machine", "home": "/h"},
    )
    assert dict(loaded.values) == {
        "name": "file",
        "home": "/h",
        "port": 2,
        "even": 0,
        "ratio": 0.9,
        "fast": True,
        "role": "MASTER",
        "threads": 8,
        "raft": False,
        "password": None,
    }
    assert len(loaded.values) == 10
    assert loaded.origins == {"port": "command line", "name": "f:2"}
    assert loaded.warnings == ()


def test_what_a_part_finds_wrong_is_told_of_the_key_that_it_names() -> None:
    def refuse(values: Values) -> str | None:
        raise ConfigError("name", f"does not go with {values['port']}")

    schema = Schema(SCHEMA, [Rule(keys=("port", "home", "name"), check=refuse)])
    with pytest.raises(SettingsError) as caught:
        load(schema, "port=7\nname=x\n", "f")
    assert str(caught.value) == "f:2: name: does not go with 7"
    with pytest.raises(SettingsError) as caught:
        load(schema, "\nhome=h\n", "f")
    assert str(caught.value) == "f:2: name: does not go with 10911"


def test_one_contradiction_is_enough_for_the_keys_it_is_about() -> None:
    schema = Schema(
        SCHEMA,
        [
            Rule(keys=("port", "name"), check=lambda values: "first"),
            Rule(keys=("name", "home"), check=lambda values: "second"),
            Rule(keys=("home",), check=lambda values: "third"),
        ],
    )
    with pytest.raises(SettingsError) as caught:
        load(schema, "", "f")
    assert str(caught.value).splitlines() == ["port: first", "home: third"]


def test_a_key_set_twice_warns_and_the_last_counts() -> None:
    loaded = load(SCHEMA, "port=1\n\nport=2\n", "dir/f", overrides={"port": "3"})
    assert loaded.values.integer("port") == 3
    assert loaded.warnings == ("dir/f:3: port is set again; dir/f:1 does not count",)


def test_keys_without_a_meaning_warn_once_and_only_if_they_are_not_as_they_are_anyway() -> None:
    assert load(SCHEMA, "threads=8\nraft=false\n", "f").warnings == ()
    assert load(SCHEMA, "threads=9\n", "f", defaults={"threads": 9}).warnings == ()
    assert load(SCHEMA, "threads=9\n", "f").warnings == (
        "f: these settings have no meaning here: threads",
    )
    assert load(SCHEMA, "", "", overrides={"threads": "9"}).warnings == (
        "these settings have no meaning here: threads",
    )


def test_values_are_printed_as_java_prints_them() -> None:
    assert [format_value(value) for value in (None, True, False, 7, 0.9, "x")] == [
        "",
        "true",
        "false",
        "7",
        "0.9",
        "x",
    ]


def test_all_settings_or_the_important_ones_are_printed_and_secrets_hidden() -> None:
    values = load(SCHEMA, "password=hunter2\nname=a\n", "f").values
    lines = SCHEMA.format_lines(values)
    assert lines[:3] == ["name=a", "home=", "port=10911"]
    assert "password=***" in lines
    assert SCHEMA.format_lines(values, important_only=True) == ["name=a"]
    properties = SCHEMA.as_properties(values)
    assert "home" not in properties, "what is not set has no line"
    assert properties["password"] == "***"
    assert properties["fast"] == "true"


def test_a_file_that_is_not_utf_8_is_refused_with_the_line() -> None:
    with pytest.raises(SettingsError) as caught:
        decode_settings(b"a=1\nb=\xff\n", "f")
    assert caught.value.text == "f:2: is not UTF-8"


def test_a_byte_order_mark_is_not_part_of_the_first_key() -> None:
    text = decode_settings(b"\xef\xbb\xbfport=1\n", "f")
    assert load(SCHEMA, text, "f").values["port"] == 1


def test_an_update_tells_what_counts_now_and_what_later() -> None:
    values = SCHEMA.defaults()
    outcome = change(SCHEMA, values, {"name": "x", "port": "7", "threads": "3", "role": "SLAVE"})
    assert outcome.now == ("name",)
    assert outcome.restart == ("port", "role")
    assert outcome.ignored == ("threads",)
    assert outcome.values == Values(
        {**values, "name": "x", "port": 7, "threads": 3, "role": "SLAVE"}
    )
    assert values["name"] == "n", "the values before are as they were"


def test_when_a_change_counts_may_depend_on_the_value_in_force() -> None:
    waiting = SCHEMA.defaults().with_changes({"role": "SLAVE"})
    running = SCHEMA.defaults()
    assert change(SCHEMA, running, {"role": "SYNC_MASTER"}).now == ("role",)
    assert change(SCHEMA, waiting, {"role": "SYNC_MASTER"}).restart == ("role",)
    assert change(SCHEMA, waiting, {"role": "SYNC_MASTER"}, running=running).now == ("role",)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"name": "x", "port": "x"}, "port: 'x' is not a whole number", id="a value"),
        pytest.param(
            {"nam": "x"}, "nam: is not a known setting; did you mean name?", id="an unknown key"
        ),
        pytest.param({"even": "20000"}, "even: is above port", id="a contradiction"),
    ],
)
def test_an_update_with_a_mistake_is_refused_as_a_whole(changes: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        change(SCHEMA, SCHEMA.defaults(), changes)
    assert str(caught.value) == text


VALUES: dict[Kind, st.SearchStrategy[Value]] = {
    Kind.TEXT: st.text(st.characters(exclude_categories=["Cc", "Cs"])).map(str.strip),
    Kind.INTEGER: st.integers(-LONG_MAX, LONG_MAX),
    Kind.FRACTION: st.floats(-1e300, 1e300),
    Kind.FLAG: st.booleans(),
    Kind.CHOICE: st.sampled_from(["a", "b"]),
}
DEFAULTS: dict[Kind, Value] = {
    Kind.TEXT: "",
    Kind.INTEGER: 0,
    Kind.FRACTION: 0.0,
    Kind.FLAG: False,
    Kind.CHOICE: "a",
}


@pytest.mark.parametrize("kind", list(Kind))
@given(data=st.data())
def test_a_printed_value_reads_back(kind: Kind, data: st.DataObject) -> None:
    value = data.draw(VALUES[kind])
    setting = Setting(
        key="k",
        default=DEFAULTS[kind],
        help="",
        minimum=-1e301 if kind is Kind.FRACTION else -LONG_MAX,
        maximum=1e301 if kind is Kind.FRACTION else LONG_MAX,
        choices=("a", "b") if kind is Kind.CHOICE else (),
    )
    assert setting.kind is kind
    text = format_member("k", format_value(value))
    assert load(Schema([setting]), text, "f").values["k"] == value


@given(st.text())
def test_no_text_makes_a_value_beyond_the_limits(text: str) -> None:
    setting = Setting(key="k", default=1, help="", minimum=1, maximum=INT_MAX)
    try:
        value = setting.parse(text)
    except ConfigError:
        return
    assert isinstance(value, int)
    assert 1 <= value <= INT_MAX
