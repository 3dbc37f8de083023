"""The master of a slave, as nameservers list it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from rmq.broker.config import LiveConfig
    from rmq.broker.registration.registration import Registered

HA_PORT_DISTANCE: Final = 1
"""The port for slaves is this far above a broker's own, here and in RocketMQ 4.9.8."""


@final
class KnownMaster:
    """Where the master is: its address, and its port for slaves."""

    def __init__(self, live: LiveConfig) -> None:
        self.address: str | None = None
        """The address that a nameserver lists; None if it lists none."""
        self.ha_address: str | None = None
        """The master's port for slaves, as a nameserver lists it, or an operator has ordered."""
        self.epoch = 0
        """The latest epoch of this name that a nameserver has reported."""
        self._live = live
        self._last_known: tuple[str, str] | None = None
        """The last listed master: its port for slaves, and its address."""

    def heard_epoch(self, epoch: int | None) -> None:
        """Take in the epoch from a nameserver's response to a registration."""
        self.epoch = max(self.epoch, epoch or 0)

    def listed(self, answer: Registered) -> None:
        """Take in the master from a nameserver's response to the registration of this slave."""
        address = answer.master_address
        if address == self._live.current.address:
            # It still lists this broker's former role.
            address = None
        self.address = address
        if address is not None and answer.ha_address is not None:
            # A master that is gone may come back at its address, so the slave keeps connecting.
            self.ha_address = answer.ha_address
            dialled = self._live.current.ha_master_address or answer.ha_address
            self._last_known = (dialled, address)

    def follow(self, ha_address: str) -> None:
        """Follow the master at an address, until a nameserver lists another one."""
        self.ha_address = ha_address

    def forget(self) -> None:
        """Follow no master until a nameserver lists one."""
        self.ha_address = self.address = None

    @property
    def dialled(self) -> str | None:
        """The port for slaves to connect to: the configured one if there is one."""
        return self._live.current.ha_master_address or self.ha_address

    def asked_at(self, ha_address: str | None) -> str | None:
        """Return the address at which a stock master at `ha_address` is asked about its log.

        It has to be asked always: it believes a report that it cannot check, and would confirm
        sends that no slave has copied. Nameservers forget a master that stopped, and it may be
        back with another log before they list it again.
        """
        if ha_address is None or self.address is not None:
            return self.address
        if self._last_known is not None and self._last_known[0] == ha_address:
            return self._last_known[1]
        host, _, port = ha_address.rpartition(":")
        return f"{host}:{int(port) - HA_PORT_DISTANCE}"
