"""Rounds of requests over both ports of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.remoting.server import RemotingServer


@final
class Rounds:
    """The rounds of a broker's two servers, for parts that are made before the servers."""

    def __init__(self) -> None:
        self._server: RemotingServer | None = None
        self._vip_server: RemotingServer | None = None

    def begin(self, server: RemotingServer, vip_server: RemotingServer) -> None:
        """Set the servers whose rounds these are."""
        self._server, self._vip_server = server, vip_server

    def in_round(self) -> bool:
        """Return whether requests of a round are being served."""
        assert self._server is not None
        assert self._vip_server is not None
        return self._server.in_round or self._vip_server.in_round

    def in_one_round(self, act: Callable[[], None]) -> None:
        """Run `act`, and write all responses that it gives on either port together."""
        server, vip_server = self._server, self._vip_server
        assert server is not None
        assert vip_server is not None
        vip_server.in_one_round(lambda: server.in_one_round(act))
