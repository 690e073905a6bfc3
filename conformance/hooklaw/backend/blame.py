"""Whose lines raised an exception: the adapter's own, those of a module it brings, or the framework's."""

import re
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import chain
from opcode import opname
from pathlib import Path
from types import TracebackType
from typing import Any

SUITE = Path(__file__).parents[1]
SITE = frozenset({"site-packages", "dist-packages"})
STDLIB = ("<frozen ", *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
PROGRAMMING = (AttributeError, NameError, ImportError, KeyError, ZeroDivisionError)
"""Types that a line of Python raises of itself; a framework's C code does not raise them in a line of the adapter."""
SLIPS = (IndexError, TypeError, ValueError)
"""Types that a line of Python, and C code too, raise for a value that does not fit."""
Types = tuple[type[BaseException], ...]
INDEXING = frozenset({"BINARY_SUBSCR", "BINARY_SLICE", "BINARY_OP", "STORE_SUBSCR", "DELETE_SUBSCR"})
UNPACKING = frozenset({"UNPACK_SEQUENCE", "UNPACK_EX", "FOR_ITER"})
WRONG_CALL = re.compile(
    r"\(\) (missing \d+ required|takes \S+ .*positional|got an unexpected keyword|got multiple values)"
    r"|object is not (callable|iterable|subscriptable)"
)


def is_adapters(error: BaseException, backend: Any, wanted: Types = ()) -> bool:
    """Whether the adapter is to blame for an exception: its own lines raised it, or those of a module that it brings.

    What a framework's C code raises in such a line is the framework's. So is what a `raise` of the adapter raises if
    its type is RuntimeError, one that the adapter's ``errors`` name, or the framework's own: it speaks for the
    framework. A type that programming mistakes have, such as KeyError, does so only where it is one of those `wanted`.
    """
    adapter, frames = unwrapped(backend), [*_frames(error.__traceback__)]
    outside = [frame for frame in frames if not _is_of_stdlib(_file(frame))]
    if not outside or not is_file_of(_file(outside[-1]), adapter):
        return False
    last = outside[-1]
    if last is not frames[-1]:  # the standard library was called by the adapter
        return not _is_word_of_framework(error, adapter, wanted)
    code = last.tb_frame.f_code.co_code
    return _is_own(error, opname[code[last.tb_lasti]] if 0 <= last.tb_lasti < len(code) else "", adapter, wanted)


def is_slip_in(files: Collection[str], error: BaseException) -> bool:
    """Whether a line of these files raised an exception that no `raise` of theirs raised, such as a TypeError."""
    frames = [frame for frame in _frames(error.__traceback__) if not _is_of_stdlib(_file(frame))]
    if not frames or _file(frames[-1]) not in files or not isinstance(error, (*PROGRAMMING, *SLIPS)):
        return False
    code = frames[-1].tb_frame.f_code.co_code
    return opname[code[frames[-1].tb_lasti]] not in {"RAISE_VARARGS", "RERAISE"}


def unwrapped(backend: Any) -> Any:
    """Return the adapter behind the wrappers of conditions."""
    while "inner" in getattr(backend, "__dict__", {}):
        backend = vars(backend)["inner"]
    return backend


def is_file_of(file: str, backend: Any) -> bool:
    """Whether a file is one of the adapter's, or holds a module that it brings."""
    return _is_file_of(file, type(backend), framework_names(backend))


def framework_names(backend: Any) -> frozenset[str]:
    """Return the names of the framework's packages: that of the attribute ``framework``, and those of its versions."""
    versions = getattr(backend, "versions", None)
    names = [str(name).replace("-", "_") for name in versions] if isinstance(versions, Mapping) else []
    framework = getattr(getattr(backend, "framework", None), "__name__", "")
    return frozenset(filter(None, [*names, framework.partition(".")[0]]))


@cache
def files_of(kind: type) -> frozenset[str]:
    """Return the files in which an adapter's class and its bases stand; a notebook's cell is a file too."""
    modules = (sys.modules.get(made.__module__) for made in kind.__mro__)
    files = {file for module in modules if (file := getattr(module, "__file__", None))}
    own = [each for made in kind.__mro__ for each in vars(made).values() if _stands_in(each, made)]
    return frozenset(files | {each.__code__.co_filename for each in own})


def _stands_in(each: Any, made: type) -> bool:
    return hasattr(each, "__code__") and getattr(each, "__module__", None) == made.__module__


@cache
def _is_file_of(file: str, kind: type, framework: frozenset[str]) -> bool:
    if file in files_of(kind):
        return True
    path = Path(file)
    if path.name.startswith("test_") or path.is_relative_to(SUITE):
        return False
    if any(path.is_relative_to(place) for name in framework for place in _places(name)):
        return False
    return any(path.is_relative_to(place) and not SITE & {*path.relative_to(place).parts} for place in _brought(kind))


@cache
def _is_of_stdlib(file: str) -> bool:
    return file.startswith(STDLIB) and not SITE & {*Path(file).parts}


def _brought(kind: type) -> Iterator[Path]:
    """Yield the folders of what the adapter brings: its package, or the folder of a module that is in none."""
    for made in kind.__mro__:
        module = sys.modules.get(made.__module__)
        file = getattr(module, "__file__", None)
        if not file or _is_of_stdlib(file) or Path(file).is_relative_to(SUITE):
            continue
        depth = made.__module__.count(".") - 1 + Path(file).name.startswith("__init__.")
        folder = Path(file).parents[max(depth, 0)]
        if folder.name not in SITE:
            yield folder


def _places(name: str) -> Iterator[Path]:
    """Yield where the module or package of a framework stands."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file:
        yield Path(file).parent if Path(file).name.startswith("__init__.") else Path(file)


def _is_own(error: BaseException, step: str, backend: Any, wanted: Types) -> bool:
    """Whether an instruction of the adapter raised the error, rather than the framework's C code in it."""
    if step == "RAISE_VARARGS":
        return not _is_word_of_framework(error, backend, wanted)
    if isinstance(error, PROGRAMMING):
        return True
    if isinstance(error, IndexError):
        return step in INDEXING
    if isinstance(error, ValueError):
        return step in UNPACKING
    return type(error) is TypeError and bool(WRONG_CALL.search(str(error))) and not _is_hook_of_rule(error, backend)


def _is_hook_of_rule(error: TypeError, backend: Any) -> bool:
    """Whether the function that was called wrongly, by the framework's C code, is one that a rule handed over."""
    outer, nested, _ = str(error).partition(".<locals>.")
    modules = (sys.modules.get(made.__module__) for made in type(backend).__mro__)
    return bool(nested) and not any(hasattr(module, outer.partition(".")[0]) for module in modules)


def _is_word_of_framework(error: BaseException, backend: Any, wanted: Types) -> bool:
    if type(error).__module__.partition(".")[0] in framework_names(backend):
        return True
    named = {*chain.from_iterable(backend.errors.values())}.difference(PROGRAMMING)
    return type(error) in {RuntimeError, *named, *wanted}


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback:
        yield traceback
        traceback = traceback.tb_next


def _file(frame: TracebackType) -> str:
    return frame.tb_frame.f_code.co_filename
