"""Thread-local modes: grad mode, inference mode, saved-tensor hooks, and the running backward pass."""

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from hooklaw.model.errors import NestedMutationError, SavedHooksDisabledError
from hooklaw.model.flags import on

if TYPE_CHECKING:
    from hooklaw.model.engine import Pass
    from hooklaw.model.strided import Strided


class Pair(NamedTuple):
    """A pack hook and its unpack hook."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


Watcher = Callable[[str, "Strided"], "Strided"]
"""Gets an operation's name and what it computed; returns the data to use."""


class _Modes(threading.local):
    recording = True
    inferring = False
    pairs: tuple[Pair, ...] = ()
    disabled: str | None = None
    mutable = False
    running: "Pass | None" = None
    autocasting = False
    group: dict[object, Any] | None = None
    watchers: tuple[Watcher, ...] = ()


class _Everywhere:
    detecting_anomaly = False
    early_stop: bool | None = None
    debug: bool | None = None
    random = Random(0)  # noqa: S311 - nothing is secret


_here = _Modes()
_everywhere = _Everywhere()
"""The modes of all threads."""


def recording() -> bool:
    """Whether grad mode is on in this thread."""
    return _here.recording


def inferring() -> bool:
    """Whether inference mode is on: new tensors have no version counter and cannot be saved for backward."""
    return _here.inferring


def detecting_anomaly() -> bool:
    """Whether anomaly detection is on: backward raises if a Node returns NaN."""
    return _everywhere.detecting_anomaly


def innermost_pair() -> Pair | None:
    """Return the pair that packs now; outer pairs do not apply."""
    return _here.pairs[-1] if _here.pairs else None


def current_pass() -> "Pass | None":
    """Return the innermost running backward pass, or None."""
    return _here.running


def running_pass() -> "Pass":
    """Return the innermost running backward pass; RuntimeError if there is none."""
    if _here.running is None:
        raise RuntimeError("a backward hook was called outside of a backward pass")
    return _here.running


def grad_mode(enabled: bool) -> AbstractContextManager[None]:  # noqa: FBT001 - it is the mode
    """Turn grad mode on or off inside."""
    return _setting("recording", lambda: enabled)


@contextmanager
def inference_mode(mode: bool = True) -> Generator[None]:  # noqa: FBT001, FBT002 - torch's own argument
    """Turn grad mode off and inference mode on inside, or the other way round."""
    with grad_mode(enabled=not mode), _setting("inferring", lambda: mode):
        yield


@contextmanager
def detect_anomaly(*, check_nan: bool = True) -> Generator[None]:
    """Make backward fail inside, in any thread, if a Node returns NaN and `check_nan` is on."""
    before, _everywhere.detecting_anomaly = _everywhere.detecting_anomaly, check_nan
    try:
        yield
    finally:
        _everywhere.detecting_anomaly = before


def early_stops(asked: bool) -> bool:  # noqa: FBT001 - it is the option
    """Whether a checkpoint made now stops its recomputation early; set_checkpoint_early_stop overrides its option."""
    return asked if _everywhere.early_stop is None else _everywhere.early_stop


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Generator[None]:  # noqa: FBT001 - torch's own argument
    """Turn the early stop of recomputations on or off, for every non-reentrant checkpoint made inside."""
    before, _everywhere.early_stop = _everywhere.early_stop, enable
    try:
        yield
    finally:
        _everywhere.early_stop = before


def debugs(asked: bool) -> bool:  # noqa: FBT001 - it is the option
    """Whether a checkpoint made now explains its errors; set_checkpoint_debug_enabled overrides its option."""
    return asked if _everywhere.debug is None else _everywhere.debug


@contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Generator[None]:  # noqa: FBT001 - torch's own argument
    """Turn the explanation of errors on or off for every non-reentrant checkpoint made inside; None leaves it."""
    before, _everywhere.debug = _everywhere.debug, enabled
    try:
        yield
    finally:
        _everywhere.debug = before


def generator() -> Random:
    """Return the generator of random numbers, of all threads."""
    return _everywhere.random


def autocast(enabled: bool = True) -> AbstractContextManager[None]:  # noqa: FBT001, FBT002 - it is the mode
    """Turn autocast on or off inside; no operation of the engine is of those whose dtype it changes."""
    return _setting("autocasting", lambda: enabled)


def autocasting() -> bool:
    """Whether autocast is on in this thread."""
    return _here.autocasting


class GraphExecGroup(AbstractContextManager[None]):
    """Lets all passes inside share what checkpoints recompute, also if it is entered again."""

    def __init__(self) -> None:
        self._recomputed, self._stack = dict[object, Any](), ExitStack()

    def __enter__(self) -> None:
        self._stack.enter_context(_setting("group", lambda: self._recomputed))

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def recomputed_here() -> dict[object, Any]:
    """Return what the group, or else the running pass, has recomputed; an empty memory outside of both."""
    if _here.group is not None:
        return _here.group
    return _here.running.memory if _here.running else {}


def watching(watcher: Watcher) -> AbstractContextManager[None]:
    """Show a watcher each operation inside."""
    return _setting("watchers", lambda: (*_here.watchers, watcher))


def watched(name: str, data: "Strided") -> "Strided":
    """Return an operation's data after the watchers."""
    for watcher in _here.watchers:
        data = watcher(name.removesuffix("Backward0").lower(), data)
    return data


def running(now: "Pass") -> AbstractContextManager[None]:
    """Make `now` the running pass inside."""
    return _setting("running", lambda: now)


def saved_tensors_hooks(pair: Pair) -> AbstractContextManager[None]:
    """Pack tensors saved inside with this pair."""

    def inside() -> tuple[Pair, ...]:
        if _here.disabled is not None:
            raise SavedHooksDisabledError(_here.disabled)
        return (*_here.pairs, pair)

    return _setting("pairs", inside)


def disable_saved_tensors_hooks(message: str) -> AbstractContextManager[None]:
    """Refuse pairs inside with this message; raise it at once if a pair is active."""

    def inside() -> str:
        if _here.pairs:
            raise SavedHooksDisabledError(message)
        return message

    return _setting("disabled", inside)


def mutable() -> AbstractContextManager[None]:
    """Allow in-place changes of saved tensors inside; NestedMutationError if they are allowed already."""

    def inside() -> bool:
        if _here.mutable:
            _here.mutable = not on("a-refused-context-ends-the-outer-one")
            raise NestedMutationError("allow_mutation_on_saved_tensors contexts cannot be nested")
        return True

    return _setting("mutable", inside)


def is_mutable() -> bool:
    """Whether saved tensors may be changed in place now."""
    return _here.mutable


def reset() -> None:
    """Restore the defaults, for this thread and for all."""
    _here.__dict__.clear()
    _everywhere.__dict__.clear()


class _setting:  # noqa: N801 - it is used like a function; a generator takes three times as long
    """A context that sets one mode of this thread, to what `inside` returns on entry."""

    def __init__(self, name: str, inside: Callable[[], Any]) -> None:
        self._name, self._inside = name, inside

    def __enter__(self) -> None:
        before = getattr(_here, self._name)
        setattr(_here, self._name, self._inside())
        self._before = before

    def __exit__(self, *_: object) -> None:
        setattr(_here, self._name, self._before)
