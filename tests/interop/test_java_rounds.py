"""The lines of SteadyProducer.java, as the account of the rounds gets them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tests.ha.processes.rounds_account import Account
from tests.paths import ROOT

if TYPE_CHECKING:
    import pytest

CHECK = ROOT / "interop" / "checks" / "java-rounds"


def test_lines_of_the_stock_producer_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(CHECK)
    note = importlib.import_module("steady_load").note
    account = Account()
    note(b"10000000000 SEND_OK plain 1", account)
    note(b"10500000000 failed MQClientException<MQBrokerException(14) plain 2", account)
    note(b"11000000000 SLAVE_NOT_AVAILABLE plain 3", account)
    note(b"12500000000 SEND_OK plain 4", account)
    assert account.promised == {b"plain 1", b"plain 4"}
    assert account.answers == {
        "SEND_OK": 2,
        "SLAVE_NOT_AVAILABLE": 1,
        "MQClientException<MQBrokerException(14)": 1,
    }
    assert account.take_trouble() == (1.5, 2.5, 1)
