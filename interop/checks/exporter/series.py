"""The series that an exporter shows, in terms that are the same wherever the servers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.support.cases import MismatchError

if TYPE_CHECKING:
    from interop.checks.exporter.exporter_session import ExporterSession
    from interop.checks.exporter.stock_exporter import Scrape

Series = frozenset[tuple[str, tuple[tuple[str, str], ...]]]
"""Family and labels of each."""

# What a client, a start or a version is known by.
_OWN: Final = frozenset(
    ("boottime", "des", "broker_version", "caddr", "localaddr", "clientAddr", "clientId")
)


def series_of(session: ExporterSession, seen: Scrape) -> Series:
    """Return the series of a scrape, the addresses of the servers told as what they are."""
    words = {session.master.address: "MASTER", session.slave.address: "SLAVE"}
    return frozenset(
        (
            family,
            tuple(
                (name, "OWN" if name in _OWN else words.get(value, value))
                for name, value in sorted(sample.labels.items())
            ),
        )
        for family, samples in seen.families.items()
        for sample in samples
    )


def expect_same_series(got: Series, wanted: Series) -> None:
    """Raise `MismatchError` naming what is there on one side only."""
    more, less = sorted(got - wanted), sorted(wanted - got)
    if more or less:
        raise MismatchError(f"more: {more}; less: {less}")
