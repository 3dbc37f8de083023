"""What the checks of the Spark formats share: whether Spark can be run here, and running it."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Final

from interop.support.java import MissingPartError
from rmq.errors import ConfigError

if TYPE_CHECKING:
    from rmq.spark.java import Java

_PACKAGES: Final = ("pyspark", "pyarrow", "numpy")


def need_spark() -> Java:
    """Return the Java that Spark runs on; raise `MissingPartError` unless all of it is there."""
    for name in _PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise MissingPartError(f"the package {name} is not installed (rmq[spark] brings it)")
    from rmq.spark.java import find_java

    try:
        return find_java(os.environ)
    except ConfigError as exc:
        raise MissingPartError(str(exc)) from exc
