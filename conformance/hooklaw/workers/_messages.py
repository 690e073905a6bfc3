"""Messages between a supervisor and its worker, each a line of JSON."""

import msgspec

from hooklaw.results.text import encoded
from hooklaw.workers.watchdog import LOADING_LIMIT


class Start(msgspec.Struct, frozen=True):
    """The first line that a worker reads."""

    service: str
    """``module:attribute`` of the service's class."""
    settings: msgspec.Raw
    folder: str
    """The worker's own folder."""
    memory: int = 0
    """Bytes of data that the worker may hold; 0 sets no bound."""
    limit: float = LOADING_LIMIT
    """Seconds that the service may take to start."""


class Request(msgspec.Struct, frozen=True):
    """A request to the service, and the seconds that it may take."""

    body: msgspec.Raw
    limit: float


class Note(msgspec.Struct, frozen=True, tag=True):
    """What the service says before it answers: if it dies, this is known."""

    body: msgspec.Raw


class Answer(msgspec.Struct, frozen=True, tag=True):
    """The service's answer to a request, or its hello."""

    body: msgspec.Raw


class Fault(msgspec.Struct, frozen=True, tag=True):
    """An exception that the service raised: the name of its type in `hooklaw.errors`, and its text."""

    kind: str
    text: str


Reply = Note | Answer | Fault


def raw(value: object) -> msgspec.Raw:
    """Return a value as it stands inside a message."""
    return msgspec.Raw(encoded(value))
