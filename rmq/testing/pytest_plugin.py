"""Fixtures of pytest that give the tests of an application a broker (`rmq.testing.local_broker`).

    def test_an_order_is_sent(rmq_broker):
        place_order(nameservers=rmq_broker.nameserver)
        assert [message.body for message in rmq_broker.messages("Orders")] == [b"42"]

They are there wherever rmq is installed, for plain tests and those on asyncio and trio alike.
Nothing of rmq is imported before a test asks for one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmq.testing.local_broker import LocalBroker


@pytest.fixture(scope="session")
def rmq_broker_settings() -> Mapping[str, str]:
    """Settings of the brokers, as in a broker.conf. Override it to have others."""
    return {}


@pytest.fixture
def rmq_broker(
    tmp_path_factory: pytest.TempPathFactory, rmq_broker_settings: Mapping[str, str]
) -> Iterator[LocalBroker]:
    """A nameserver and a broker for one test, with nothing in them."""
    from rmq.testing.local_broker import LocalBroker

    with LocalBroker(tmp_path_factory.mktemp("rmq"), rmq_broker_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def rmq_session_broker(
    tmp_path_factory: pytest.TempPathFactory, rmq_broker_settings: Mapping[str, str]
) -> Iterator[LocalBroker]:
    """The same for all tests of a run: cheaper, and tests see each other's messages."""
    from rmq.testing.local_broker import LocalBroker

    with LocalBroker(tmp_path_factory.mktemp("rmq"), rmq_broker_settings) as broker:
        yield broker
