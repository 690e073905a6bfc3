"""The situations of a hook and of the call of a verb, and the bases of the mutants that know them."""

import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Hook, Mutant, fresh

SECOND, THIRD = 2, 3


class Registration(NamedTuple):
    """What was the case when a hook was registered."""

    thread: int
    number: int
    """Which hook of its owner it is, from 1."""
    in_pass: bool
    in_no_grad: bool
    in_checkpoint: bool
    with_pairs: bool
    in_module: bool
    modules: int
    """In how many forwards of modules it was."""
    calls: list[None]
    """One for each call of the hook, the present one too."""


class Knowing(Mutant):
    """A mutant that knows what is under way; it changes nothing."""

    watched = frozenset(
        {"backward", "backward_from_all", "backward_from_edge", "grad", "checkpoint", "saved_tensors_hooks", "module"}
    )
    """Verbs that it overrides only to know when they run."""
    passes = 0
    failures = 0
    """How many passes, calls of modules and hooks have ended in an error."""
    under_way = fresh(list[dict[str, Any]])
    """The options of the passes under way, the innermost last."""
    regions = 0
    pairs = 0
    modules = 0
    _owned = fresh(dict[tuple[str, int], tuple[Any, int]])

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        with self._pass("backward", {**how, "gradient": gradient}):
            super().backward(root, gradient, **how)

    def backward_from_all(self, roots: Sequence[Any], gradients: Sequence[Any] | None = None) -> None:
        with self._pass("backward_from_all", {}):
            super().backward_from_all(roots, gradients)

    def backward_from_edge(self, edge: Any, gradient: Any = None) -> None:
        with self._pass("backward_from_edge", {}):
            super().backward_from_edge(edge, gradient)

    def grad(self, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        with self._pass("grad", {**how, "outputs": outputs}):
            return super().grad(outputs, inputs, grad_outputs, **how)

    @contextmanager
    def _pass(self, verb: str, how: dict[str, Any]) -> Generator[None]:
        self.passes += 1
        self.under_way.append({**how, "verb": verb, "in_no_grad": not self.is_grad_enabled()})
        try:
            yield
        except BaseException:
            self.failures += 1
            raise
        finally:
            self.under_way.pop()

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        def region(*given: Any, **named: Any) -> Any:
            self.regions += 1
            try:
                return fn(*given, **named)
            finally:
                self.regions -= 1

        return super().checkpoint(region, *inputs, **how)

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        with super().saved_tensors_hooks(pack, unpack):
            self.pairs += 1
            try:
                yield
            finally:
                self.pairs -= 1

    def module(self, parameters: Any, forward: Hook) -> Any:
        def run(*given: Any, **named: Any) -> Any:
            self.modules += 1
            try:
                return forward(*given, **named)
            except BaseException:
                self.failures += 1
                raise
            finally:
                self.modules -= 1

        return super().module(parameters, run)

    def registration(self, verb: str, owner: Any = None) -> Registration:
        """Return what is the case now that a hook is registered on an owner."""
        return Registration(
            thread=threading.get_ident(),
            number=self._number(verb, owner),
            in_pass=bool(self.under_way),
            in_no_grad=not self.is_grad_enabled(),
            in_checkpoint=self.regions > 0,
            with_pairs=self.pairs > 0,
            in_module=self.modules > 0,
            modules=self.modules,
            calls=[],
        )

    def _number(self, verb: str, owner: Any) -> int:
        alive, number = self._owned.get((verb, id(owner)), (None, 0))
        if alive is not None and alive() is not owner:
            number = 0  # another owner had this id
        with suppress(TypeError):
            alive = weakref.ref(owner)
        self._owned[verb, id(owner)] = (alive, number + 1)
        return number + 1

    def running(self, option: str) -> Any:
        """Return an option of the pass under way, or None."""
        return self.under_way[-1].get(option) if self.under_way else None


class Grouping(Knowing):
    """A mutant that knows what was registered on an owner, in order."""

    groups = fresh(dict[Any, tuple[Any, list[Any]]])

    def group_of(self, verb: str, owner: Any, options: dict[str, Any]) -> list[Any]:
        """Return what an owner has by a verb and its options; hooks there are given the like."""
        owner = self.node_metadata(owner) if verb.startswith("node_") else owner  # one of its names may die before it
        key = verb, id(owner), *sorted(options.items())
        alive, group = self.groups.get(key, (None, []))
        if alive is not None and alive() is not owner:
            group = []  # another owner had this id
        try:
            alive = weakref.ref(owner)
        except TypeError:
            alive = None
        self.groups[key] = alive, group
        return group


class Situation(NamedTuple):
    """A situation, in which a mutant is wrong."""

    name: str
    words: str
    holds: Callable[[Knowing, Registration], Any]
    scope: str = ""
    """How the ids of the rules end that try hooks in such situations, if some do."""


ALWAYS = Situation("", "", lambda *_: True)
"""What is wrong in every situation; the name and the words of its mutant leave it out."""
ANY = (
    Situation("later", "that is not the first of its owner", lambda _, its: its.number >= SECOND),
    Situation("third", "that is the third of its owner, or later", lambda _, its: its.number >= THIRD),
    Situation("second-call", "from its second call on", lambda _, its: len(its.calls) >= SECOND),
    Situation("third-call", "from its third call on", lambda _, its: len(its.calls) >= THIRD),
    Situation("second-alone", "that is the second of its owner, alone", lambda _, its: its.number == SECOND),
    Situation("second-call-alone", "in its second call alone", lambda _, its: len(its.calls) == SECOND),
    Situation(
        "another-thread",
        "in another thread than the one that registered it",
        lambda _, its: threading.get_ident() != its.thread,
        "every-root",
    ),
    Situation("after-a-failure", "after a pass, a forward or a hook that failed", lambda mutant, _: mutant.failures),
)
"""Situations of any hook."""
PLACES = (
    Situation("in-no-grad", "in no_grad", lambda _, its: its.in_no_grad),
    Situation("in-a-pass", "inside a pass", lambda _, its: its.in_pass),
    Situation("in-a-checkpoint", "in a checkpointed function", lambda _, its: its.in_checkpoint),
    Situation("in-a-module", "in a module's forward", lambda _, its: its.in_module),
    Situation("with-pairs", "under saved-tensor hooks", lambda _, its: its.with_pairs),
    Situation("in-three-modules", "inside three forwards of modules", lambda _, its: its.modules >= THIRD),
)
"""Places where a hook is registered or a verb is called."""
EITHER = (
    *ANY,
    *(
        each._replace(name=f"made-{each.name}", words=f"that was registered {each.words}", scope="every-place")
        for each in PLACES
    ),
)
"""Situations of a hook that runs in backward or in forward."""
IN_PASS = (
    Situation("second-pass", "from the second pass on", lambda mutant, _: mutant.passes >= SECOND, "every-pass"),
    Situation("third-pass", "from the third pass on", lambda mutant, _: mutant.passes >= THIRD, "every-pass"),
    Situation("second-pass-alone", "in the second pass alone", lambda mutant, _: mutant.passes == SECOND),
    Situation(
        "create-graph", "in a pass that creates a graph", lambda mutant, _: mutant.running("create_graph"), "every-pass"
    ),
    Situation(
        "retained", "in a pass that retains the graph", lambda mutant, _: mutant.running("retain_graph"), "every-pass"
    ),
    Situation(
        "inputs", "in a backward that is limited to inputs", lambda mutant, _: mutant.running("inputs"), "every-root"
    ),
    Situation("autograd-grad", "in autograd.grad", lambda mutant, _: mutant.running("verb") == "grad", "every-pass"),
    Situation(
        "several-roots",
        "in a backward from several roots",
        lambda mutant, _: mutant.running("verb") == "backward_from_all",
        "every-root",
    ),
    Situation(
        "edge-root",
        "in a backward from a gradient edge",
        lambda mutant, _: mutant.running("verb") == "backward_from_edge",
        "every-root",
    ),
    Situation(
        "seeded",
        "in a backward that is given a gradient",
        lambda mutant, _: mutant.running("verb") == "backward" and mutant.running("gradient") is not None,
        "every-root",
    ),
    Situation(
        "several-outputs",
        "in autograd.grad of several outputs",
        lambda mutant, _: type(mutant.running("outputs")) in {list, tuple},
        "every-pass",
    ),
    Situation("no-grad-pass", "in a pass under no_grad", lambda mutant, _: mutant.running("in_no_grad"), "every-pass"),
    Situation(
        "inner-pass", "in a pass inside a pass", lambda mutant, _: len(mutant.under_way) >= SECOND, "inside-a-pass"
    ),
    Situation(
        "in-two-passes",
        "in a pass inside two others",
        lambda mutant, _: len(mutant.under_way) >= THIRD,
        "inside-a-pass",
    ),
    Situation(
        "inner-grad",
        "in autograd.grad inside a pass",
        lambda mutant, _: len(mutant.under_way) >= SECOND and mutant.running("verb") == "grad",
        "inside-a-pass",
    ),
    Situation(
        "backward-creating",
        "in a backward that creates a graph",
        lambda mutant, _: mutant.running("create_graph") and mutant.running("verb") == "backward",
        "every-pass",
    ),
)
"""Situations of a hook that runs in backward."""
IN_FORWARD = (
    Situation("no-grad", "under no_grad", lambda mutant, _: not mutant.is_grad_enabled()),
    Situation("in-a-checkpoint", "in a checkpointed function", lambda mutant, _: mutant.regions),
    Situation("recomputation", "in a recomputation", lambda mutant, _: mutant.regions and mutant.under_way),
    Situation("in-a-module", "inside the forward of another module", lambda mutant, _: mutant.modules),
    Situation("with-pairs", "while saved-tensor hooks are active", lambda mutant, _: mutant.pairs),
    Situation("in-three-modules", "inside three forwards of other modules", lambda mutant, _: mutant.modules >= THIRD),
)
"""Situations of a hook that runs in forward."""


class Acting(Knowing):
    """A mutant that knows what is the case when a verb is called; it changes nothing."""

    home = 0
    """The thread in which the rule runs."""
    given: tuple[Any, ...] = ()
    how: Mapping[str, Any] = MappingProxyType({})
    """What the verb that is called is given."""
    acts = fresh(dict[str, list[None]])
    """For each verb one for each call."""
    _latest: Callable[[], Any] = staticmethod(lambda: None)
    _before: Callable[[], Any] = staticmethod(lambda: None)

    def reset(self) -> None:
        super().reset()
        self.home = threading.get_ident()

    def is_in(self, situation: Situation, verb: str, *given: Any, **how: Any) -> bool:
        """Whether this is the situation, now that a verb is called."""
        owner = next(iter(given), None)
        its = self.registration(verb, owner[0] if type(owner) in {list, tuple} and owner else owner)
        calls = self.acts.setdefault(verb, [])
        calls.append(None)
        self.given, self.how = given, how
        found = situation.holds(self, its._replace(thread=self.home, calls=calls))
        self._note(next(iter(given), None))
        self.given, self.how = (), {}  # or it would keep tensors alive
        return bool(found)

    def _note(self, owner: Any) -> None:
        if self._latest() is not owner:
            self._before = self._latest
            with suppress(TypeError):
                self._latest = weakref.ref(owner)

    @property
    def the_one_before(self) -> Any:
        """The object that a verb acted on before the present one, if it is another and still alive."""
        return self._before()

    def is_given(self, place: int, option: str) -> bool:
        """Whether the verb that is called is given an argument, by position or by name."""
        return (self.given[place] if len(self.given) > place else self.how.get(option)) is not None

    def is_given_several(self, place: int) -> bool:
        """Whether the verb that is called is given several objects by position."""
        return type(self.given[place]) in {list, tuple} and len(self.given[place]) >= SECOND


ELSEWHERE = (
    Situation("another-thread", "in another thread", lambda _, its: threading.get_ident() != its.thread),
    ANY[-1],
    *PLACES,
)
"""Situations of a verb that do not count its calls."""
OF_CALLS = (
    Situation("second-call", "after the first", lambda _, its: len(its.calls) >= SECOND),
    Situation("third-call", "after the second", lambda _, its: len(its.calls) >= THIRD),
    Situation("second-call-alone", "that is the second, alone", lambda _, its: len(its.calls) == SECOND),
    Situation(
        "later-object",
        "with another object than the first",
        lambda _, its: its.number < SECOND and len(its.calls) >= SECOND,
    ),
    Situation("same-object", "with the same object again", lambda _, its: its.number >= SECOND),
    *ELSEWHERE,
)
"""Situations in which a verb is called."""
