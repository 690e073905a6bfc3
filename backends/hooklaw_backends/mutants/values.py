"""Kinds of values, what goes wrong with a value of a kind, and the functions that find such values in what is given."""

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from hooklaw_backends.mutants.base import Mutant

Holds = Callable[[Mutant, Any], bool]
"""Whether a value is of a kind."""
Change = Callable[[Mutant, Any], Any]
"""Returns what is in the place of a value, or of a tree of values, or `LOST`."""
LOST = object()
"""In place of values with which nothing is done."""


def _tensor(holds: Holds) -> Holds:
    """Return whether a value is a tensor of a kind; a tensor that cannot be read, e.g. in a transform, is not."""

    def is_of_kind(mutant: Mutant, value: Any) -> bool:
        try:
            return mutant.is_tensor(value) and holds(mutant, value)
        except Exception:  # noqa: BLE001 - the framework's own
            return False

    return is_of_kind


def _numbers(data: Any) -> list[Any]:
    return [number for row in data for number in _numbers(row)] if isinstance(data, list) else [data]


def _are_zero(mutant: Mutant, tensor: Any, *, several: bool) -> bool:
    numbers = _numbers(mutant.tolist(tensor))
    return bool(numbers) and (len(numbers) > 1) is several and not any(numbers)


def _is_empty(value: Any) -> bool:
    return isinstance(value, list | tuple | dict) and not value


KINDS: dict[str, tuple[str, Holds]] = {
    "scalar": ("a 0-d tensor", _tensor(lambda its, value: its.shape(value) == ())),
    "one-element": ("a 1-d tensor of one element", _tensor(lambda its, value: its.shape(value) == (1,))),
    "zero": ("a tensor of one element, which is 0", _tensor(lambda its, value: _are_zero(its, value, several=False))),
    "zeros": ("a tensor of several zeros", _tensor(lambda its, value: _are_zero(its, value, several=True))),
    "empty": ("a tensor without elements", _tensor(lambda its, value: 0 in its.shape(value))),
    "constant": ("a tensor that does not require grad", _tensor(lambda its, value: not its.requires_grad(value))),
    "leaf": ("a leaf that requires grad", _tensor(lambda its, value: its.requires_grad(value) and its.is_leaf(value))),
    "non-leaf": ("a non-leaf", _tensor(lambda its, value: its.requires_grad(value) and not its.is_leaf(value))),
    "none": ("None", lambda _, value: value is None),
    "number": ("a number other than 0", lambda _, value: type(value) in (int, float) and value != 0),
    "zero-number": ("the number 0", lambda _, value: type(value) in (int, float) and value == 0),
    "flag": ("a bool", lambda _, value: isinstance(value, bool)),
    "text": ("a string", lambda _, value: isinstance(value, str)),
    "empty-container": ("an empty tuple, list or dict", lambda _, value: _is_empty(value)),
    "list": ("a list", lambda _, value: isinstance(value, list)),
    "tuple": ("a tuple", lambda _, value: isinstance(value, tuple)),
    "dict": ("a dict", lambda _, value: isinstance(value, dict)),
}
"""Each kind in words, and whether a value is of it."""


def _copied(mutant: Mutant, value: Any) -> Any:
    return mutant.clone(value) if mutant.is_tensor(value) else type(value)(value)


FAULTS: dict[str, tuple[str, Change]] = {
    "none": ("{} is None", lambda *_: None),
    "zeros": ("{} is zeros", lambda mutant, value: mutant.zeros_like(value)),
    "doubled": ("{} is doubled", lambda _, value: value + value),
    "copied": ("{} is a copy", _copied),
    "detached": ("{} is detached", lambda mutant, value: mutant.detach(value)),
}
"""Each fault in words, and what it makes of a value of a kind; a value can also be lost."""


def changed(holds: Holds, wrong: Change, mutant: Mutant, tree: Any) -> Any:
    """Change each value of a kind in a tree of tuples, lists and dicts; a tree without such a value stays itself."""
    if holds(mutant, tree):
        return wrong(mutant, tree)
    if type(tree) in (list, tuple):
        made = type(tree)(changed(holds, wrong, mutant, each) for each in tree)
        return tree if all(map(is_, made, tree)) else made
    if type(tree) is dict:
        made = {key: changed(holds, wrong, mutant, each) for key, each in tree.items()}
        return tree if all(made[key] is tree[key] for key in tree) else made
    return tree


def lost(holds: Holds, mutant: Mutant, tree: Any) -> Any:
    """Return `LOST` if some value in a tree is of a kind."""
    return tree if changed(holds, lambda *_: LOST, mutant, tree) is tree else LOST


def replaced(given: Sequence[Any], place: int, value: Any) -> tuple[Any, ...]:
    """Return arguments with another value in one place, which counts from the end if it is negative."""
    at = place % len(given)
    return *given[:at], value, *given[at + 1 :]
