"""A flow as a method of both admin clients: awaited in the one on trio, plain in the blocking one.

The modules of this package list their calls in a class each (`TopicCalls.create_topic`), and both
admin clients inherit all of them by way of `rmq.client.core.admin.catalogue.AdminCalls`. A method
has the arguments, the result and the documentation of its flow; type checkers tell by the `run` of
the client whether the result must be awaited. Pure.
"""

from __future__ import annotations

from functools import wraps
from inspect import iscoroutinefunction
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    final,
    overload,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from rmq.client.core.flows import Flow
    from rmq.client.core.nameservers import Nameservers

T = TypeVar("T")
P = ParamSpec("P")


class HasNameservers(Protocol):
    """A client of either kind."""

    @property
    def nameservers(self) -> Nameservers: ...


class AwaitedRunner(Protocol):
    """An admin client that runs flows in coroutines."""

    @property
    def client(self) -> HasNameservers: ...

    async def run(self, flow: Flow[T]) -> T: ...


class BlockingRunner(Protocol):
    """An admin client that returns when a flow has ended."""

    @property
    def client(self) -> HasNameservers: ...

    def run(self, flow: Flow[T]) -> T: ...


@final
class AdminCall(Generic[P, T]):
    """Declares a method that runs `flow`, which is given the client's nameservers first."""

    __slots__ = ("_awaited", "_blocking", "flow")

    def __init__(self, flow: Callable[Concatenate[Nameservers, P], Flow[T]]) -> None:
        self.flow = flow

        @wraps(flow)
        async def awaited(admin: AwaitedRunner, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await admin.run(flow(admin.client.nameservers, *args, **kwargs))

        @wraps(flow)
        def blocking(admin: BlockingRunner, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return admin.run(flow(admin.client.nameservers, *args, **kwargs))

        self._awaited = awaited
        self._blocking = blocking

    @overload
    def __get__(
        self, admin: None, owner: type[AwaitedRunner]
    ) -> Callable[Concatenate[AwaitedRunner, P], Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(
        self, admin: None, owner: type[BlockingRunner]
    ) -> Callable[Concatenate[BlockingRunner, P], T]: ...

    @overload
    def __get__(self, admin: AwaitedRunner, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, admin: BlockingRunner, owner: type) -> Callable[P, T]: ...

    def __get__(self, admin: object, owner: type) -> Callable[..., Any]:
        is_awaited = iscoroutinefunction(getattr(owner, "run", None))
        method: Callable[..., Any] = self._awaited if is_awaited else self._blocking
        return method if admin is None else MethodType(method, admin)
