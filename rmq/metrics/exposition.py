"""Sheets of samples as text, put together in steps so that the event loop is never held for long.

`prometheus_client` takes about 30 us for a sample, and 0.3 s for the 10,000 of a broker with some
hundred topics and groups: too long for a broker that serves requests meanwhile. This writes the
same text in a tenth of that, a few hundred samples at a time, with other tasks running in between;
a test compares the two. What the library itself collects, it also writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from prometheus_client.exposition import choose_encoder, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector as LibraryCollector

    from rmq.metrics.families import Family, Labels, Sheet

SAMPLES_PER_STEP: Final = 200

_PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text"
_END: Final = b"# EOF\n"
"""Ends a text in the OpenMetrics format."""


@final
class Text:
    """The text of one scrape, in the format that a client accepts."""

    def __init__(self, accept: str) -> None:
        self._encode, self.content_type = _encoder(accept)
        self._is_openmetrics = self.content_type.startswith(_OPENMETRICS)
        self._pieces: list[bytes] = []
        """Kept apart: to copy some megabytes takes as long as many steps."""
        self._escaped: dict[str, str] = {}
        """Values of labels, of which most come often."""
        self._joined: dict[Labels, dict[Labels, str]] = {}
        """Labels by their names and values: several families have the same ones."""

    def add_sheet(self, sheet: Sheet) -> Iterator[None]:
        """Add all families of a sheet, in steps."""
        constant = self._labels(tuple(sheet.constant), tuple(sheet.constant.values()))
        for family, rows in sheet.rows.items():
            self._add_heading(family)
            for start in range(0, len(rows), SAMPLES_PER_STEP):
                self._add_rows(family, constant, rows[start : start + SAMPLES_PER_STEP])
                yield
        for family, histograms in sheet.histograms.items():
            self._add_heading(family)
            for labels, buckets, total in histograms:
                self._add_histogram(family, constant, labels, buckets, total)
            yield

    def add_metrics(self, metrics: Iterable[Metric]) -> None:
        """Add a few families that `prometheus_client` has collected."""
        for metric in metrics:
            self._pieces.append(self._encode(_Only(metric)).removesuffix(_END))

    def finish(self) -> list[bytes]:
        """Return all of it, in pieces."""
        return [*self._pieces, _END] if self._is_openmetrics else self._pieces

    def _add_heading(self, family: Family) -> None:
        name, text = family.name, family.help.replace("\\", r"\\").replace("\n", r"\n")
        if self._is_openmetrics:
            text = text.replace('"', r"\"")
            if family.kind == "counter":
                name = name.removesuffix("_total")
        self._append(f"# HELP {name} {text}\n# TYPE {name} {family.kind}\n")

    def _add_rows(
        self, family: Family, constant: str, rows: Sequence[tuple[Labels, float]]
    ) -> None:
        name, names = family.name, family.labels
        if not names:
            shown = f"{{{constant}}}" if constant else ""
            lines = [f"{name}{shown} {value}\n" for _, value in rows]
        else:
            start = f"{name}{{{constant}," if constant else f"{name}{{"
            known, join = self._joined.setdefault(names, {}), self._labels
            lines = [
                f"{start}{known.get(labels) or join(names, labels)}}} {value}\n"
                for labels, value in rows
            ]
        self._append("".join(lines))

    def _add_histogram(
        self,
        family: Family,
        constant: str,
        labels: Labels,
        buckets: Sequence[tuple[str, int]],
        total: float,
    ) -> None:
        name = family.name
        own = ",".join(filter(None, (constant, self._labels(family.labels, labels))))
        start, shown = (f"{own},", f"{{{own}}}") if own else ("", "")
        lines = [f'{name}_bucket{{{start}le="{bound}"}} {count}\n' for bound, count in buckets]
        count = buckets[-1][1]
        lines.append(f"{name}_count{shown} {count}\n{name}_sum{shown} {total}\n")
        self._append("".join(lines))

    def _append(self, lines: str) -> None:
        # Names may hold halves of characters, which JSON can express and UTF-8 cannot.
        self._pieces.append(lines.encode("utf-8", "replace"))

    def _labels(self, names: Labels, values: Labels) -> str:
        escaped = self._escaped
        pieces: list[str] = []
        for name, value in zip(names, values, strict=True):
            text = escaped.get(value)
            if text is None:
                text = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
                escaped[value] = text
            pieces.append(f'{name}="{text}"')
        joined = self._joined.setdefault(names, {})[values] = ",".join(pieces)
        return joined


def _encoder(accept: str) -> tuple[Callable[[LibraryCollector], bytes], str]:
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):
        # It compares version numbers without asking whether they are numbers.
        return generate_latest, _PLAIN


class _Only:
    """A registry of one family."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        """Return it."""
        return (self._metric,)
