"""A registry as text, put together in steps so that the event loop is never held for long.

`prometheus_client` takes about 15 us for a sample, so that one family with a label for each of
1,000 topics would stop a broker for 15 ms. The samples are all taken at one moment; making text of
them is done a few at a time, with other tasks running in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.metrics_core import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

SAMPLES_PER_STEP: Final = 100

_PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
_END: Final = b"# EOF\n"
"""Ends a text in the OpenMetrics format."""
_SLICEABLE: Final = ("counter", "gauge", "histogram")


async def exposition(registry: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    """Return the content type and the text for a client that accepts these types."""
    encode, content_type = _encoder(accept)
    families = list(registry.collect())
    text = bytearray()
    samples = 0
    for metric in families:
        for number, part in enumerate(_slices(metric)):
            encoded = encode(_Only(part)).removesuffix(_END)
            text += _without_headings(encoded) if number else encoded
            samples += len(part.samples)
            if samples >= SAMPLES_PER_STEP:
                samples = 0
                await trio.lowlevel.checkpoint()
    if content_type.startswith("application/openmetrics-text"):
        text += _END
    return content_type, bytes(text)


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):
        # It compares version numbers without asking whether they are numbers.
        return generate_latest, _PLAIN


def _slices(metric: Metric) -> Iterator[Metric]:
    """Cut a family into parts of a few samples, if they can be written one after the other."""
    samples = metric.samples
    if (
        len(samples) <= SAMPLES_PER_STEP
        or metric.type not in _SLICEABLE
        # These stand behind all others, in a family of their own.
        or any(sample.name.endswith("_created") for sample in samples)
    ):
        yield metric
        return
    for start in range(0, len(samples), SAMPLES_PER_STEP):
        part = Metric(metric.name, metric.documentation, metric.type, metric.unit)
        part.samples = samples[start : start + SAMPLES_PER_STEP]
        yield part


def _without_headings(text: bytes) -> bytes:
    while text.startswith(b"# "):
        text = text.partition(b"\n")[2]
    return text


class _Only:
    """A registry of one family."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        """Return it."""
        return (self._metric,)
