"""Output files: they are replaced whole, and an error names the file."""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from hooklaw.errors import OutputError


@contextmanager
def output_errors(what: str, hint: str = "") -> Generator[None]:
    """Raise OutputError in place of an OSError; `what` says what cannot be done, `hint` how to mend it."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot {what}: {error.strerror}{hint}") from error


def make_room(path: Path) -> None:
    """Make the folder of an output file; OSError if the file cannot be a regular file."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
    if not path.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if path.exists() and not path.is_file():  # never truncate or remove a device or a pipe
        raise OSError(errno.EINVAL, "Is a directory" if path.is_dir() else "Not a regular file")


def replace_file(path: Path, text: str) -> None:
    """Replace the file's text atomically; OSError if it cannot be written."""
    part = path.parent / f".{path.name}.{os.getpid()}"
    try:
        make_room(path)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
