"""Admin calls as methods: every flow of the catalogue is one, in both clients."""

from __future__ import annotations

import inspect
from typing import Final

import pytest

from rmq.client import AdminClient
from rmq.client.blocking import BlockingAdmin, BlockingClient
from rmq.client.core.admin.calls import AdminCall
from rmq.client.core.admin.catalogue import AdminCalls
from rmq.client.core.config import ClientConfig

CALLS: Final = {
    name: call
    for subject in AdminCalls.__bases__
    for name, call in vars(subject).items()
    if isinstance(call, AdminCall)
}

calls = pytest.mark.parametrize("name", sorted(CALLS))


def test_no_call_is_listed_twice() -> None:
    listed = [name for subject in AdminCalls.__bases__ for name in vars(subject) if name in CALLS]
    assert len(listed) == len(CALLS) == 62


@calls
def test_a_call_has_the_name_of_its_flow_which_takes_nameservers_first(name: str) -> None:
    flow = CALLS[name].flow
    assert flow.__name__ == name
    assert next(iter(inspect.signature(flow).parameters)) == "nameservers"


@calls
def test_both_clients_have_it_with_the_arguments_and_the_documentation_of_its_flow(
    name: str,
) -> None:
    flow = CALLS[name].flow
    _, *wanted = inspect.signature(flow).parameters.values()
    for admin_class, is_awaited in ((AdminClient, True), (BlockingAdmin, False)):
        method = getattr(admin_class, name)
        assert inspect.iscoroutinefunction(method) is is_awaited
        assert method.__doc__ == flow.__doc__
    bound = getattr(BlockingAdmin(BlockingClient(ClientConfig(nameservers="127.0.0.1:1"))), name)
    assert list(inspect.signature(bound).parameters.values()) == wanted
