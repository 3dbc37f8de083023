"""Where generated files go: to standard output, or into a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.errors import RmqError
from rmq.files import storage_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.cli.generate.kind import GeneratedFile


class FileExistsAlreadyError(RmqError):
    """A file that would be written is there, and is another one."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"there already, and different: {', '.join(paths)}")
        self.hint = "--force writes over them"


def shown(files: Sequence[GeneratedFile]) -> str:
    """Return what is printed; of several files, each begins with a line that names it."""
    if len(files) == 1:
        return files[0].text
    return "\n".join(f"# --- {file.path}\n{file.text}" for file in files)


def write(files: Sequence[GeneratedFile], folder: Path, *, force: bool) -> list[Path]:
    """Write files below a folder and return their paths.

    Nothing is written if one of them is there with another content, unless `force`.
    """
    targets = [(folder / file.path, file.text) for file in files]
    different = [str(path) for path, text in targets if _is_other(path, text)]
    if different and not force:
        raise FileExistsAlreadyError(different)
    for path, text in targets:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as exc:
            raise storage_error("write", path, exc) from exc
    return [path for path, _ in targets]


def _is_other(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") != text
    except FileNotFoundError:
        return False
    except UnicodeDecodeError:
        return True
    except OSError as exc:
        raise storage_error("read", path, exc) from exc
