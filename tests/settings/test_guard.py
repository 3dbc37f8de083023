"""Guarded settings: who may change them by a request, and that secrets go nowhere."""

from __future__ import annotations

from typing import Final

import pytest

from rmq.errors import ConfigError
from rmq.settings.guard import guarded_changes, guarded_remark, shown_changes, without_masks
from rmq.settings.schema import Schema, Setting

SCHEMA: Final = Schema(
    [
        Setting(key="folder", default="/data", help="a path", guarded=True),
        Setting(key="port", default=1, help="a port", guarded=True),
        Setting(key="password", default=None, help="a secret", secret=True),
        Setting(key="size", default=1, help="not guarded"),
    ]
)
VALUES: Final = SCHEMA.defaults({"password": "sesame"})


@pytest.mark.parametrize(
    ("changes", "guarded"),
    [
        pytest.param({"size": "2"}, [], id="not guarded"),
        pytest.param({"folder": "/data", "port": " 1 "}, [], id="as they are"),
        pytest.param({"folder": "/etc", "size": "2"}, ["folder"], id="a path"),
        pytest.param({"port": "none"}, ["port"], id="not even a value"),
        pytest.param({"password": "other"}, ["password"], id="a secret"),
        pytest.param({"password": ""}, ["password"], id="no secret any more"),
        pytest.param({"password": "sesame"}, ["password"], id="a guess at the secret"),
        pytest.param({"unknown": "1"}, [], id="unknown"),
    ],
)
def test_a_change_is_guarded_if_a_guarded_value_would_be_another(
    changes: dict[str, str], guarded: list[str]
) -> None:
    assert guarded_changes(SCHEMA, VALUES, changes) == guarded


def test_a_secret_that_is_not_set_may_be_left_so() -> None:
    values = SCHEMA.defaults()
    assert guarded_changes(SCHEMA, values, {"password": ""}) == []
    assert guarded_changes(SCHEMA, values, {"password": "x"}) == ["password"]


def test_a_secret_that_comes_back_as_it_was_shown_is_left_out() -> None:
    shown = SCHEMA.as_properties(VALUES)
    assert shown["password"] == "***"
    assert without_masks(SCHEMA, shown) == {"folder": "/data", "port": "1", "size": "1"}
    assert without_masks(SCHEMA, {"folder": "***"}) == {"folder": "***"}


def test_changes_are_logged_without_secrets() -> None:
    changes = {"password": "other", "size": "2", "unknown": "x"}
    assert shown_changes(SCHEMA, changes) == {"password": "***", "size": "2", "unknown": "x"}


def test_an_error_about_a_secret_does_not_tell_it() -> None:
    with pytest.raises(ConfigError) as caught:
        SCHEMA["password"].parse("se\x00same")
    assert "same" not in str(caught.value)


def test_a_refusal_names_the_keys_and_what_to_do() -> None:
    remark = guarded_remark(["folder", "password"])
    assert "folder, password" in remark
    assert "settings file" in remark
    assert "aclEnable" in remark
