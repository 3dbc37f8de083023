"""Exit codes are a promise to scripts: the numbers, and which error leads to which."""

from __future__ import annotations

import pytest

from rmq.cli.common.exit_codes import ExitCode, exit_code_of
from rmq.errors import (
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    ListenError,
    RemoteProtocolError,
    RequestTimeoutError,
    ResponseError,
    RmqError,
    TooManyRequestsError,
)


def test_the_numbers_do_not_change() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "FAILURE": 1,
        "USAGE": 2,
        "CONFIG": 3,
        "UNAVAILABLE": 4,
        "SOFTWARE": 70,
        "OUT_OF_RESOURCES": 71,
        "INTERRUPTED": 130,
        "PIPE_CLOSED": 141,
    }


class NewConfigError(ConfigError):
    """A later addition to the tree that nobody put into the table."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(RmqError("no"), ExitCode.FAILURE, id="RmqError"),
        pytest.param(ConfigError("k", "r"), ExitCode.CONFIG, id="ConfigError"),
        pytest.param(NewConfigError("k", "r"), ExitCode.CONFIG, id="an unlisted kind of it"),
        pytest.param(ListenError("a", "r"), ExitCode.UNAVAILABLE, id="ListenError"),
        pytest.param(ConnectFailedError("p", "r"), ExitCode.UNAVAILABLE, id="ConnectFailed"),
        pytest.param(ConnectionLostError("p", "r"), ExitCode.UNAVAILABLE, id="ConnectionLost"),
        pytest.param(RequestTimeoutError("p", "w", 3), ExitCode.UNAVAILABLE, id="RequestTimeout"),
        pytest.param(TooManyRequestsError("p", "w", 9), ExitCode.FAILURE, id="TooManyRequests"),
        pytest.param(ResponseError("p", "w", 1, None), ExitCode.FAILURE, id="ResponseError"),
        pytest.param(RemoteProtocolError("bad"), ExitCode.FAILURE, id="RemoteProtocolError"),
        pytest.param(OSError("bare"), ExitCode.SOFTWARE, id="an OSError nobody translated"),
        pytest.param(AssertionError("1 != 2"), ExitCode.SOFTWARE, id="broken invariant"),
        pytest.param(MemoryError(), ExitCode.OUT_OF_RESOURCES, id="no memory"),
    ],
)
def test_the_closest_listed_ancestor_decides(error: BaseException, code: ExitCode) -> None:
    assert exit_code_of(error) is code
