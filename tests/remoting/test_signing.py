"""Signing requests."""

from __future__ import annotations

import base64
import hmac

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmq.errors import ConfigError
from rmq.remoting.headers import GetMaxOffsetRequest
from rmq.remoting.signing import Credentials, SigningKey, signed

SECRET = Credentials(access_key="rocketmq2", secret_key="12345678")


def test_a_known_signature() -> None:
    fields = signed(SECRET, GetMaxOffsetRequest(topic="T", queue_id=0), None, b"hello")
    assert fields == {"AccessKey": "rocketmq2", "Signature": "GnET/KgUdZ/rKFkrDsT32OFgo9E="}


def test_fields_beside_the_header_are_signed_but_for_the_one_that_brokers_leave_out() -> None:
    plain = signed(SECRET, None, {"a": "1"}, None)
    assert signed(SECRET, None, {"a": "2"}, None)["Signature"] != plain["Signature"]
    query = signed(SECRET, None, {"a": "1", "_UNIQUE_KEY_QUERY": "true"}, None)
    assert query == plain | {"_UNIQUE_KEY_QUERY": "true"}


@given(st.text(max_size=100), st.binary(max_size=300))
@example("k" * 64, b"")
@example("k" * 65, b"x")
def test_a_key_signs_as_hmac_does(secret_key: str, content: bytes) -> None:
    digest = hmac.digest(secret_key.encode(), content, "sha1")
    key = SigningKey(secret_key)
    for _ in range(2):
        assert key.signature(content) == base64.b64encode(digest)


def test_a_token_goes_along() -> None:
    token = Credentials(access_key="rocketmq2", secret_key="12345678", security_token="once")
    fields = signed(token, None, None, None)
    assert fields["SecurityToken"] == "once"
    assert fields["Signature"] != signed(SECRET, None, None, None)["Signature"]


def test_nothing_secret_is_shown() -> None:
    assert "12345678" not in repr(SECRET)


@pytest.mark.parametrize("name", ["access_key", "secret_key"])
def test_both_keys_are_needed(name: str) -> None:
    keys = {"access_key": "rocketmq2", "secret_key": "12345678", name: ""}
    with pytest.raises(ConfigError, match=name):
        Credentials(**keys)
