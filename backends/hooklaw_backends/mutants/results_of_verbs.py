"""Mutants that return a wrong value from one verb: each fault of each value, in each call or from a later one on.

No rule need name them: the rules whose ids begin with the row's `chapters` are tried first, then all others. A value
that is lost among several, or in the place of another, is a cell of `several_values`.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.in_situations import named

Change = Callable[[Any], Any]
"""Makes a wrong value of a right one."""
Apply = Callable[[Change, Any], Any]
"""Changes a value where it is in a result."""
Wrong = Callable[[Mutant, Any], Any]
LATER, THIRD = 2, 3


def _in_tensors(change: Wrong) -> Wrong:
    return lambda mutant, value: change(mutant, value) if mutant.is_tensor(value) else value


OLD = {
    "of-the-call-before": ("{} is that of the call before", -2),
    "of-its-first-call": ("{} is that of its first call", 0),
}
"""Which of the values so far is returned: of those for all owners, or of those for the same."""
NONE: dict[str, tuple[str, Wrong]] = {"none": ("{} is None", lambda *_: None)}
TENSORS: dict[str, tuple[str, Wrong]] = {
    **NONE,
    "zeros": ("{} is zeros", _in_tensors(lambda mutant, value: mutant.zeros_like(value))),
    "doubled": ("{} is doubled", _in_tensors(lambda _, value: value + value)),
    "copied": ("{} is a copy", _in_tensors(lambda mutant, value: mutant.clone(value))),
}
FLAGS: dict[str, tuple[str, Wrong]] = {
    "true": ("{} is True", lambda *_: True),
    "false": ("{} is False", lambda *_: False),
}


def _itself(change: Change, result: Any) -> Any:
    return change(result)


def _in_each(change: Change, result: Sequence[Any]) -> Any:
    return tuple(map(change, result)) if isinstance(result, tuple) else list(map(change, result))


def _at(place: int) -> Apply:
    """Return what changes one of several values."""

    def changed(change: Change, result: Any) -> Any:
        if len(result) <= 1:
            return result
        at = place % len(result)
        return type(result)(change(value) if nr == at else value for nr, value in enumerate(result))

    return changed


def _in_values(change: Change, state: Any) -> Any:
    for key in list(state):
        state[key] = change(state[key])
    return state


def _output(change: Change, found: Any) -> Any:
    return change(found[0]), *found[1:]


class Result(NamedTuple):
    """A value that a verb returns."""

    verb: str
    words: str
    faults: Mapping[str, tuple[str, Any]]
    """Each in words, and what makes a wrong value, or which earlier value it is."""
    chapters: tuple[str, ...]
    """How the ids of the rules begin that are tried first."""
    where: Apply = _itself
    within: "Within | None" = None
    """Where the function is whose result it is, if the verb returns a function."""
    without: tuple[str, ...] = ()
    """Faults that make no difference, or of which no law speaks."""
    of_any: bool = False
    """Whether calls are counted for all owners together."""

    @property
    def is_kept(self) -> bool:
        """Whether some mutant has to know earlier values."""
        return not OLD.keys().isdisjoint(self.faults)


class _Counting(Mutant):
    """A mutant that knows which call of its owner a call is."""

    calls = fresh(dict[int, tuple[Any, int]])

    def call_of(self, owner: Any) -> int:
        """Return which call of its owner this one is."""
        alive, number = self.calls.get(id(owner), (None, 0))
        if alive is not None and alive() is not owner:
            number = 0  # another owner had this id
        with suppress(TypeError):
            alive = weakref.ref(owner)
        self.calls[id(owner)] = alive, number + 1
        return number + 1


Act = Callable[[Any, Any, Any], Any]
"""Returns, for a mutant and the owner of a call, what is returned in place of its result."""
Within = Callable[[Callable[[Hook], Hook], Any], Any]
"""Replaces a function in what a verb returns."""


def of_function(replace: Callable[[Hook], Hook], function: Hook) -> Hook:
    """Replace the function that a verb returns."""
    return replace(function)


def _of_pull_back(replace: Callable[[Hook], Hook], found: Any) -> Any:
    return found[0], replace(found[1])


def _acting(result: Result, act: Act, base: type[Mutant]) -> type[Mutant]:
    def run(self: Any, old: Hook, *given: Any, **options: Any) -> Any:
        found = old(*given, **options)
        if not result.within:
            return act(self, given[0] if given else None, found)
        return result.within(lambda function: lambda *values: act(self, function, function(*values)), found)

    return overriding(result.verb, base=base)(run)


def made(result: Result, wrong: Wrong, first: int = 1) -> type[Mutant]:
    """Return a mutant that changes a value from some call of its owner on."""

    def act(self: Any, owner: Any, found: Any) -> Any:
        number = self.call_of(None if result.of_any else owner)
        return result.where(partial(wrong, self), found) if number >= first else found

    return _acting(result, act, _Counting)


class _Remembering(_Counting):
    """A mutant that knows the values that a verb has returned; it keeps no Node alive."""

    values = fresh(dict[Any, list[Callable[[], Any]]])

    def remembered(self, key: Any, value: Any) -> list[Callable[[], Any]]:
        """Keep a value, and return all that were kept under its key."""
        kept = self.values.setdefault(key, [])
        kept.append(lambda: value)
        if not self.is_tensor(value):
            with suppress(TypeError):
                kept[-1] = weakref.ref(value)
        return kept


def stale(result: Result, which: int) -> type[Mutant]:
    """Return a mutant in which a value is an earlier one: of the same owner, or of the call before of any."""

    def act(self: Any, owner: Any, found: Any) -> Any:
        places = count()
        if self.call_of(owner) == 1:
            self.values = {key: kept for key, kept in self.values.items() if key[0] != id(owner)}

        def change(value: Any) -> Any:
            kept = self.remembered((None if which else id(owner), next(places)), value)
            earlier = kept[which]() if len(kept) >= -which else None
            return value if earlier is None else earlier

        return result.where(change, found)

    return _acting(result, act, _Remembering)


UNCHANGED = ("of-its-first-call", "none-later")
"""Faults that make no difference to what never changes, or is read once."""
GRADIENTS = {name: TENSORS[name] for name in ("zeros", "doubled")}
RESULTS: dict[str, Result] = {
    "grad-of": Result("grad_of", ".grad", {**TENSORS, **OLD}, ("grad-accumulation", "retain-grad")),
    "grad-first": Result(
        "grad", "the first of several results of autograd.grad", GRADIENTS, ("grad",), _at(0), of_any=True
    ),
    "grad-last": Result(
        "grad", "the last of several results of autograd.grad", GRADIENTS, ("grad",), _at(-1), of_any=True
    ),
    "grad-each": Result("grad", "each result of autograd.grad", {**GRADIENTS, **OLD}, ("grad",), _in_each, of_any=True),
    "saved-tensor": Result(
        "saved_tensors",
        "each saved tensor of a Node",
        {**TENSORS, **OLD},
        ("saved-tensor",),
        _in_each,
        without=("of-its-first-call", "copied-later"),  # what unpack returns is the same at each read, but for its hook
    ),
    "next-node": Result(
        "node_next", "each next Node", {**NONE, **OLD}, ("node", "post-acc"), _in_each, without=UNCHANGED
    ),
    "node-metadata": Result(
        "node_metadata",
        "a Node's metadata",
        {"copied": ("{} is a copy", lambda _, value: dict(value))},
        ("node",),
        without=("copied-later",),
    ),
    "node-name": Result("node_name", "a Node's name", NONE, ("node",), without=("none-later",)),
    "grad-fn": Result("grad_fn", "grad_fn", {**NONE, **OLD}, ("node", "in-place"), without=UNCHANGED[:1]),
    "accumulate-grad": Result(
        "accumulate_grad", "the AccumulateGrad Node of a leaf", OLD, ("accumulate", "node"), without=UNCHANGED
    ),
    "gradient-edge": Result(
        "get_gradient_edge", "a gradient edge", OLD, ("gradient-edge",), without=("of-its-first-call",)
    ),
    "is-leaf": Result("is_leaf", "is_leaf", {**FLAGS, **OLD}, ("leaf",)),
    "requires-grad": Result("requires_grad", "requires_grad", {**FLAGS, **OLD}, ("leaf", "grad-mode")),
    "retains-grad": Result("retains_grad", "retains_grad", {**FLAGS, **OLD}, ("retain-grad",)),
    "is-grad-enabled": Result("is_grad_enabled", "is_grad_enabled", {**FLAGS, **OLD}, ("grad-mode",)),
    "is-training": Result("is_training", "training of a module", {**FLAGS, **OLD}, ("module",)),
    "is-node": Result(
        "is_node",
        "whether an object is a Node",
        FLAGS,
        ("node",),
        without=("true-later", "false-later"),  # what an object is does not change
    ),
    "is-autocast-enabled": Result("is_autocast_enabled", "is_autocast_enabled", {**FLAGS, **OLD}, ("checkpoint",)),
    "func-gradient": Result(
        "func_grad", "what func.grad's function returns", {**GRADIENTS, **OLD}, ("func",), within=of_function
    ),
    "vjp-output": Result("func_vjp", "the output of vjp", GRADIENTS, ("func",), _output),
    "vjp-gradient": Result(
        "func_vjp", "what vjp's function returns", {**GRADIENTS, **OLD}, ("func",), _in_each, _of_pull_back
    ),
    "state": Result(
        "state_dict",
        "each value of a state dict",
        {**TENSORS, **OLD},
        ("state-dict",),
        _in_values,
        without=("none", "none-later", "copied", "copied-later"),
    ),
}
"""The values of which there is a mutant for each fault.

Left out are is_conj and is_neg, which rules only compare with a plain run; and the values of a state dict as copies:
what it shares with its module is no law of hooks.
"""


def cells(of: str, row: Result, module: str = __name__) -> Iterator[tuple[str, type[Mutant]]]:
    """Yield the name and the class of each mutant of a value, which belongs to a module."""
    for name, words, cell in _cells(row):
        if name not in row.without:
            variable, mutant = named(f"{of}-{name}", words.format(row.words), row.chapters, cell)
            mutant.__module__ = module
            yield variable, mutant


def _cells(row: Result) -> Iterator[tuple[str, str, type[Mutant]]]:
    for fault, (words, wrong) in row.faults.items():
        if fault in OLD:
            yield fault, words, stale(row, wrong)
        else:
            yield fault, words, made(row, wrong)
            yield f"{fault}-later", f"{words} from the second call on", made(row, wrong, LATER)
            if f"{fault}-later" not in row.without:
                yield f"{fault}-third", f"{words} from the third call on", made(row, wrong, THIRD)


vars().update(cell for of, row in RESULTS.items() for cell in cells(of, row))
