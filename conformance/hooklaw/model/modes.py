"""What holds in one thread: whether it records, which saved-tensor hooks are active, and which backward runs."""

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from hooklaw.model.errors import NestedMutationError, SavedHooksDisabledError
from hooklaw.model.flags import on

if TYPE_CHECKING:
    from hooklaw.model.engine import Pass


class Pair(NamedTuple):
    """Saved-tensor hooks."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


class _Modes(threading.local):
    recording = True
    inferring = False
    pairs: tuple[Pair, ...] = ()
    disabled: str | None = None
    mutable = False
    running: "Pass | None" = None


class _Everywhere:
    detecting_anomaly = False


_here = _Modes()
_everywhere = _Everywhere()
"""What holds in all threads."""


def recording() -> bool:
    """Tell whether operations are being recorded in this thread."""
    return _here.recording


def inferring() -> bool:
    """Tell whether what is made now is for inference alone: nobody counts its changes, and no Node can save it."""
    return _here.inferring


def detecting_anomaly() -> bool:
    """Tell whether backward is to look for gradients that are no numbers."""
    return _everywhere.detecting_anomaly


def innermost_pair() -> Pair | None:
    """Return the pair that applies now: the innermost, alone."""
    return _here.pairs[-1] if _here.pairs else None


def current_pass() -> "Pass | None":
    """Return the backward pass that it is in, the innermost if nested, or None outside of any."""
    return _here.running


def running_pass() -> "Pass":
    """Return the backward pass out of which a hook is called."""
    if _here.running is None:
        raise RuntimeError("a hook that belongs to backward was called outside of one")
    return _here.running


def grad_mode(enabled: bool) -> AbstractContextManager[None]:  # noqa: FBT001 - it is the mode
    """Record inside, or do not."""
    return _setting("recording", lambda: enabled)


@contextmanager
def inference_mode() -> Generator[None]:
    """Record nothing inside, and make tensors for inference alone."""
    with grad_mode(enabled=False), _setting("inferring", lambda: True):
        yield


@contextmanager
def detect_anomaly() -> Generator[None]:
    """Let backward fail inside, in any thread, where a Node returns what is no number."""
    before, _everywhere.detecting_anomaly = _everywhere.detecting_anomaly, True
    try:
        yield
    finally:
        _everywhere.detecting_anomaly = before


def running(now: "Pass") -> AbstractContextManager[None]:
    """Note inside which pass it is."""
    return _setting("running", lambda: now)


def saved_tensors_hooks(pair: Pair) -> AbstractContextManager[None]:
    """Pack what is saved inside by this pair."""

    def inside() -> tuple[Pair, ...]:
        if _here.disabled is not None:
            raise SavedHooksDisabledError(_here.disabled)
        return (*_here.pairs, pair)

    return _setting("pairs", inside)


def disable_saved_tensors_hooks(message: str) -> AbstractContextManager[None]:
    """Refuse pairs inside, with this message; a pair that is active is refused at once."""

    def inside() -> str:
        if _here.pairs:
            raise SavedHooksDisabledError(message)
        return message

    return _setting("disabled", inside)


def mutable() -> AbstractContextManager[None]:
    """Let saved tensors be changed in place; not inside a context that does so already."""

    def inside() -> bool:
        if _here.mutable:
            _here.mutable = not on("a-refused-context-ends-the-outer-one")
            raise NestedMutationError("contexts in which saved tensors may be changed in place cannot be nested")
        return True

    return _setting("mutable", inside)


def is_mutable() -> bool:
    """Tell whether saved tensors may be changed in place now."""
    return _here.mutable


def reset() -> None:
    """Forget what was set, in this thread or for all."""
    _here.__dict__.clear()
    _everywhere.__dict__.clear()


class _setting:  # noqa: N801 - it is called as a function is; a generator would take three times as long
    """A context in which something holds in this thread; what holds is asked for when it is entered."""

    def __init__(self, name: str, inside: Callable[[], Any]) -> None:
        self._name, self._inside = name, inside

    def __enter__(self) -> None:
        before = getattr(_here, self._name)
        setattr(_here, self._name, self._inside())
        self._before = before

    def __exit__(self, *_: object) -> None:
        setattr(_here, self._name, self._before)
