"""The worker's main program, ``python -m hooklaw.workers._server``: it starts a service and passes requests on to it.

A service is a class. Its attributes ``Settings`` and ``Request`` name the types that msgspec reads; it is made of its
settings, `hello` returns what its supervisor should know first, and `answer` answers a request. A service may call
the `note` that `answer` is given: what it says there is known even if it dies next.
"""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from hooklaw.errors import HooklawError, NotRunError, WorkerError, become_worker, broken
from hooklaw.results.text import encoded
from hooklaw.workers._messages import Answer, Fault, Note, Reply, Request, Start, raw
from hooklaw.workers.watchdog import WORDS, Watchdog


def main() -> int:
    """Answer requests until there are no more."""
    become_worker()
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a framework prints is not an answer
    requests = sys.stdin.buffer
    start = msgspec.json.decode(requests.readline(), type=Start)
    watchdog = Watchdog(Path(start.folder, WORDS))
    try:
        _serve(start, watchdog, requests, replies)
    finally:
        import shutil  # noqa: PLC0415 - it takes longer than the rest of the server

        shutil.rmtree(start.folder, ignore_errors=True)  # the supervisor may be gone
    return 0


def _serve(start: Start, watchdog: Watchdog, requests: BinaryIO, replies: BinaryIO) -> None:
    def say(reply: Reply) -> None:
        replies.write(encoded(reply) + b"\n")
        replies.flush()

    def guarded(limit: float, work: Callable[[], object]) -> bool:
        watchdog.start(limit)
        reply = _reply(work)
        watchdog.stop()
        say(reply)
        return isinstance(reply, Answer)

    service: Any = None
    request_type: Any = None

    def hello() -> object:
        nonlocal service, request_type
        _bound(start.memory)
        module, _, attribute = start.service.partition(":")
        made: Any = getattr(importlib.import_module(module), attribute)
        service, request_type = made(msgspec.json.decode(start.settings, type=made.Settings)), made.Request
        return service.hello()

    if not guarded(start.limit, hello):
        return
    for line in requests:
        request = msgspec.json.decode(line, type=Request)
        body = msgspec.json.decode(request.body, type=request_type)
        guarded(request.limit, lambda body=body: service.answer(body, lambda said: say(Note(raw(said)))))


def _reply(work: Callable[[], object]) -> Answer | Fault:
    try:
        return Answer(raw(work()))
    except (HooklawError, NotRunError) as error:
        return Fault(type(error).__name__, str(error))
    except BaseException as error:  # noqa: BLE001 - the supervisor raises it again
        return Fault(WorkerError.__name__, broken(error))


def _bound(memory: int) -> None:
    """Let code that eats all memory hear of it before the machine does."""
    if memory:
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


if __name__ == "__main__":
    raise SystemExit(main())
