"""Settings of Spark for processes that live for a minute and queries that take a moment."""

from __future__ import annotations

from typing import Final

JAVA_OF_A_MINUTE: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Java optimises no further than pays off, and does not check the classes of Spark's own files."""
QUICK_JAVA: Final = f"{JAVA_OF_A_MINUTE} -XX:+UseSerialGC"
"""Likewise, with the collector that has no threads of its own."""

QUICK_SPARK: Final = {
    # To write and compile Java for a query, and to plan it again at each shuffle, takes longer
    # than these queries do: a fifth of the CPU time of test_dlq.py. The demo (tests/cli/pipeline)
    # runs with what users have.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.driver.memory": "1g",
}
