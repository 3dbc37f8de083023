"""Numbers of the wire against lists kept by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.remoting.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    OWN_CODES_FIRST,
    VERSION,
    LanguageCode,
    RequestCode,
    ResponseCode,
    Serialization,
)
from tests.remoting.frames import all_captured

if TYPE_CHECKING:
    from enum import IntEnum


OWN_REQUESTS = 10
OWN_RESPONSES = 1

USED_BY_OTHER_VERSIONS = (
    # The codes of every release from 4.0.0 to 5.3.3, requests and answers, as ranges.
    range(-1006, 422 + 1),
    range(501, 604 + 1),
    range(901, 1018 + 1),
    range(1500, 2016 + 1),
    range(3001, 3010 + 1),
    range(200_050, 200_151 + 1),
)


@pytest.mark.parametrize(
    ("codes", "count"),
    [
        pytest.param(RequestCode, 95 + OWN_REQUESTS, id="requests"),
        pytest.param(ResponseCode, 37 + OWN_RESPONSES, id="responses"),
        pytest.param(LanguageCode, 13, id="languages"),
        pytest.param(Serialization, 2, id="serializations"),
    ],
)
def test_all_codes_are_there_and_none_is_a_second_name_of_another(
    codes: type[IntEnum], count: int
) -> None:
    assert len(codes) == len(codes.__members__) == count
    assert len({int(code) for code in codes}) == count


@pytest.mark.parametrize(
    ("codes", "count"),
    [
        pytest.param(RequestCode, OWN_REQUESTS, id="requests"),
        pytest.param(ResponseCode, OWN_RESPONSES, id="responses"),
    ],
)
def test_our_own_codes_stand_apart_from_those_of_every_version(
    codes: type[IntEnum], count: int
) -> None:
    own = [int(code) for code in codes if code >= OWN_CODES_FIRST]
    assert len(own) == count
    assert not [code for code in own for used in USED_BY_OTHER_VERSIONS if code in used]


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (10, "SEND_MESSAGE"),
        (11, "PULL_MESSAGE"),
        (15, "UPDATE_CONSUMER_OFFSET"),
        (17, "UPDATE_AND_CREATE_TOPIC"),
        (34, "HEART_BEAT"),
        (36, "CONSUMER_SEND_MSG_BACK"),
        (45, "GET_ALL_DELAY_OFFSET"),
        (46, "CHECK_CLIENT_CONFIG"),
        (53, "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG"),
        (100, "PUT_KV_CONFIG"),
        (103, "REGISTER_BROKER"),
        (105, "GET_ROUTEINFO_BY_TOPIC"),
        (106, "GET_BROKER_CLUSTER_INFO"),
        (200, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP"),
        (205, "WIPE_WRITE_PERM_OF_BROKER"),
        (216, "DELETE_TOPIC_IN_NAMESRV"),
        (219, "GET_KVLIST_BY_NAMESPACE"),
        (224, "GET_TOPICS_BY_CLUSTER"),
        (300, "QUERY_TOPIC_CONSUME_BY_WHO"),
        (310, "SEND_MESSAGE_V2"),
        (313, "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST"),
        (320, "SEND_BATCH_MESSAGE"),
        (326, "PUSH_REPLY_MESSAGE_TO_CLIENT"),
        (329, "DELETE_EXPIRED_COMMITLOG"),
        (9001, "HA_STATUS"),
        (9006, "HA_STEP_DOWN"),
        (9007, "HA_FENCE"),
        (9008, "HA_RENOUNCE"),
        (9009, "HA_FORGET"),
        (9010, "HA_RECORDS"),
    ],
)
def test_request_codes_have_their_names(number: int, name: str) -> None:
    assert RequestCode(number).name == name


@pytest.mark.parametrize("number", [0, 9, 16, 44, 54, 217, 330])
def test_other_versions_request_codes_are_unknown(number: int) -> None:
    assert number not in {int(code) for code in RequestCode}


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "SUCCESS"),
        (1, "SYSTEM_ERROR"),
        (2, "SYSTEM_BUSY"),
        (3, "REQUEST_CODE_NOT_SUPPORTED"),
        (10, "FLUSH_DISK_TIMEOUT"),
        (13, "MESSAGE_ILLEGAL"),
        (16, "NO_PERMISSION"),
        (17, "TOPIC_NOT_EXIST"),
        (19, "PULL_NOT_FOUND"),
        (22, "QUERY_NOT_FOUND"),
        (25, "SUBSCRIPTION_NOT_LATEST"),
        (28, "FILTER_DATA_NOT_LATEST"),
        (202, "TRANSACTION_STATE_UNKNOW"),
        (206, "CONSUMER_NOT_ONLINE"),
        (211, "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED"),
        (215, "FLOW_CONTROL"),
        (9101, "STALE_EPOCH"),
    ],
)
def test_response_codes_have_their_names(number: int, name: str) -> None:
    assert ResponseCode(number).name == name


def test_languages_have_their_numbers() -> None:
    names = "JAVA CPP DOTNET PYTHON DELPHI ERLANG RUBY OTHER HTTP GO PHP OMS RUST"
    assert " ".join(language.name for language in LanguageCode) == names
    assert [int(language) for language in LanguageCode] == list(range(13))


def test_serializations_flags_and_version_are_those_of_the_wire() -> None:
    assert (Serialization.JSON, Serialization.ROCKETMQ) == (0, 1)
    assert (FLAG_RESPONSE, FLAG_ONEWAY) == (1, 2)
    assert VERSION == 409


def test_every_captured_code_is_known() -> None:
    frames = all_captured()
    requests = {frame.code for frame in frames if frame.kind != "response"}
    responses = {frame.code for frame in frames if frame.kind == "response"}
    assert requests <= {int(code) for code in RequestCode}
    assert responses <= {int(code) for code in ResponseCode}
    assert (len(requests), len(responses)) == (46, 8)
