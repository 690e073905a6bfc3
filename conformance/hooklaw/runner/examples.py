"""The examples of a property, which are drawn once: to draw them takes longer than to try them.

They are the same each time. A property that has held for all of them is tried on the very same ones where it is
executed again, on a mutant or under a condition. Where one fails, Hypothesis searches for the smallest.
"""

import copy
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

from hooklaw.backend.protocol import Backend
from hooklaw.errors import is_users_interrupt
from hooklaw.law.trace import Trace

Property = Callable[..., None]
FIXTURES = ("backend", "trace")
PLAIN = (bool, int, float, complex, str, bytes, type(None))

_bodies: dict[Property, Property] = {}
"""The functions below Hypothesis's decorator."""
_held: dict[Property, list[dict[str, Any]]] = {}
"""The examples for which properties have held."""
_search = threading.local()
"""The examples that this thread's search has drawn so far."""


def run(function: Property, backend: Backend, trace: Trace) -> None:
    """Run a rule's function; a property that has held is tried on its examples before Hypothesis draws others."""
    if not hasattr(function, "hypothesis"):
        function(backend, trace)
    elif not _still_holds(function, backend, trace):
        _draw(function, backend, trace)


def _still_holds(function: Property, backend: Backend, trace: Trace) -> bool:
    try:
        for example in _held.get(function, ()):
            _bodies[function](backend=backend, trace=trace, **copy.deepcopy(example))
    except BaseException as error:
        if is_users_interrupt(error):
            raise
        trace.clear()
        return False
    return function in _held


def _draw(function: Property, backend: Backend, trace: Trace) -> None:
    if function not in _bodies:
        _note_examples(function)
    _search.examples = []
    function(backend, trace)
    if None not in _search.examples:
        _held[function] = _search.examples


def _note_examples(function: Property) -> None:
    """Have the body of a property, which Hypothesis calls with each example, note what it is given."""
    handle = function.__dict__["hypothesis"]
    body = _bodies[function] = handle.inner_test

    signature = inspect.signature(body)

    @functools.wraps(body)
    def noting(*given: Any, **named: Any) -> None:
        arguments = signature.bind(*given, **named).arguments
        drawn = {name: value for name, value in arguments.items() if name not in FIXTURES}
        _search.examples.append(copy.deepcopy(drawn) if _is_plain(drawn) else None)
        body(*given, **named)

    handle.inner_test = noting


def _is_plain(value: Any) -> bool:
    """Whether a value is data, and no means to draw more."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return all(map(_is_plain, value)) if isinstance(value, list | tuple) else isinstance(value, PLAIN)
