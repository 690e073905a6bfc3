"""Errors of the user's input: one exception for one condition; its text says how to mend it."""

import sys
from collections.abc import Iterable

NEARLY = 0.08
"""A second name is suggested if it is less like by no more than this."""


class HooklawError(Exception):
    """An error in the input, not in the judged backend: the command line prints it and exits 3."""


class UnknownBackendError(HooklawError):
    """No backend has this name."""


class BackendImportError(HooklawError):
    """The backend's module cannot be imported."""


class BackendContractError(HooklawError):
    """The object is not a backend: a verb is missing, or a capability does not exist."""


class UnknownRuleError(HooklawError):
    """No rule has this id, or the selection matches none."""


class UnknownConditionError(HooklawError):
    """No condition has this name."""


class UnknownMutantError(HooklawError):
    """No mutant's name contains this text."""


class DocumentationError(HooklawError):
    """A docstring, or a page of the documentation's sources, cannot be found."""


class RuleDefinitionError(HooklawError):
    """A rule is malformed."""


class ExpectationFileError(HooklawError):
    """An expectation file cannot be read, or an entry is malformed."""


class RecordFileError(HooklawError):
    """A record file cannot be read, is foreign, newer than this hooklaw, or incomplete."""


class RecordConflictError(HooklawError):
    """Two runs cannot be read together."""


class ShardError(HooklawError):
    """The text does not name a shard."""


class ProgramError(HooklawError):
    """A fuzzed program cannot be read."""


class ScriptError(HooklawError):
    """A rule cannot be written as a script of its own."""


class FindingsFileError(HooklawError):
    """A file of known findings cannot be read, or an entry is malformed."""


class PackerError(HooklawError):
    """The object is not a packer: it cannot be imported, takes arguments, or does not return a context manager."""


class BenchError(HooklawError):
    """The benchmark cannot run: the workload or device does not exist, or torch is not installed."""


class StrategyError(HooklawError, ValueError):
    """No strategy has this name, or it does not fit the model."""


class WorkerError(HooklawError):
    """A worker cannot be started, or broke where nothing was expected to break."""


class FolkloreError(HooklawError):
    """A folklore file cannot be read, or a claim is malformed."""


class UnknownClaimError(HooklawError):
    """No claim has this id, or these words."""


class UnknownPageError(HooklawError):
    """No page of the documentation has this name."""


class OutputError(HooklawError):
    """An output file cannot be written."""


def did_you_mean(word: str, known: Iterable[str], otherwise: str, *, likeness: float = 0.55) -> str:
    """Return the end of a sentence that refuses a name: the one or two known names most like it, or `otherwise`."""
    from difflib import SequenceMatcher, get_close_matches  # noqa: PLC0415 - needed for a wrong name only

    names = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), names, n=2, cutoff=likeness)
    rates = [SequenceMatcher(None, name, word.lower()).ratio() for name in near]
    alike = [names[name] for name, rate in zip(near, rates, strict=True) if rate > rates[0] - NEARLY]
    return f"did you mean {' or '.join(alike)}?" if alike else otherwise


def misspelt(name: str, error: BaseException) -> str:
    """Return what was meant, in brackets, if the error says that this module or attribute does not exist."""
    from pkgutil import iter_modules  # noqa: PLC0415 - needed for a wrong name only

    if isinstance(error, AttributeError):
        return _bracketed(did_you_mean(error.name or name, dir(error.obj), ""))
    if not isinstance(error, ModuleNotFoundError) or not f"{name}.".startswith(f"{error.name}."):
        return ""
    assert error.name  # noqa: S101 - the beginning of a name
    package, _, last = error.name.rpartition(".")
    folders = getattr(sys.modules.get(package), "__path__", ()) if package else None
    near = did_you_mean(last, (found.name for found in iter_modules(folders)), "")
    return _bracketed(near)


def _bracketed(hint: str) -> str:
    return f" ({hint})" if hint else ""


def broken(error: BaseException) -> str:
    """Return in one sentence what was raised where nothing was expected to be raised."""
    from traceback import extract_tb  # noqa: PLC0415 - most runs do without

    frame = extract_tb(error.__traceback__)[-1]
    said = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
    return f"the run broke: {said} ({frame.filename}:{frame.lineno})"


_is_worker = False


def become_worker() -> None:
    """Know that this process is a worker: Ctrl-C and the signals that end a program reach its supervisor alone."""
    global _is_worker  # noqa: PLW0603 - a process is a worker or is not
    _is_worker = True


def is_worker() -> bool:
    """Whether this process is a worker, which judges one backend and ends with it."""
    return _is_worker


def is_users_interrupt(error: BaseException) -> bool:
    """Whether an exception is the user's Ctrl-C; in a worker only what is judged there raises KeyboardInterrupt."""
    return isinstance(error, KeyboardInterrupt) and not _is_worker


class NotRunError(Exception):
    """Raised by a backend's factory if this machine lacks hardware or a package; the text says which."""
