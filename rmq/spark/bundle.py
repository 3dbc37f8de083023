"""rmq as one zip file, for Python processes on machines where it is not installed.

`rmq pipeline bundle` writes it for `spark-submit --py-files`; a session on a cluster that was not
started by `spark-submit` sends it by itself. Packages with compiled parts cannot travel that way:
numpy, pyarrow and msgspec have to be installed there, or be sent as an archive of an environment
(docs/spark.md).
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Final

import rmq
from rmq.errors import ConfigError

_PACKAGES: Final = ("rmq", "pyspark_rmq", "pyspark_rmq_store")
_SUFFIXES: Final = {".py", ".properties", ".typed"}
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""Equal contents make equal files."""


def write_bundle(path: Path) -> int:
    """Write the file; return how many modules are in it. A half-written file is never left."""
    root = Path(rmq.__file__).parent.parent
    fresh = path.with_name(f"{path.name}.part")
    count = 0
    try:
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as bundle:
            for package in _PACKAGES:
                for module in sorted((root / package).rglob("*")):
                    if module.suffix not in _SUFFIXES or not module.is_file():
                        continue
                    info = zipfile.ZipInfo(str(module.relative_to(root)), _EPOCH)
                    info.compress_type = zipfile.ZIP_DEFLATED
                    bundle.writestr(info, module.read_bytes())
                    count += 1
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return count


@functools.cache
def own_bundle() -> Path:
    """Return a bundle of the rmq that runs here; raise `ConfigError` if it cannot be written.

    It is deleted when this process ends: workers that come later ask for it, too. Its name follows
    from its contents, because Spark refuses another file of the same name.
    """
    present = bundle_of(Path(rmq.__file__))
    if present is not None:
        return present
    try:
        folder = Path(tempfile.mkdtemp(prefix="rmq-bundle-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        written = folder / "rmq.zip"
        write_bundle(written)
        return written.rename(folder / f"rmq-{zlib.crc32(written.read_bytes()):08x}.zip")
    except OSError as exc:
        raise ConfigError(
            "TMPDIR",
            f"rmq could not be packed for the workers of Spark: {exc.filename}: {exc.strerror}",
        ) from exc


def bundle_of(module: Path) -> Path | None:
    """Return the zip file that a module was imported from, if it was."""
    return next((parent for parent in module.parents if parent.is_file()), None)
