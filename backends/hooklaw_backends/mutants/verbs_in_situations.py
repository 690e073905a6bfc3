"""Mutants that are wrong with one verb in one situation: each fault in each situation, as those of hooks are made.

Left out are errors that no page states, or that torch does not raise, as for a checkpoint of no kind;
`cos_`, of which no page says what it does not say of `mul_`; and what no verb can express: whether a pass from several
roots or from an edge frees the graph, since it takes no `retain_graph`.
"""

import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from hooklaw import ErrorKind
from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.situations import ALWAYS, ELSEWHERE, OF_CALLS, Acting, Situation


class Act(NamedTuple):
    """A call of a verb."""

    verb: "Verb"
    old: Hook
    """The backend's own verb."""
    given: tuple[Any, ...]
    how: Mapping[str, Any]

    def __call__(self, **how: Any) -> Any:
        return self.old(*self.given, **{**self.how, **how})

    @property
    def result(self) -> Any:
        """What the verb returns if it does nothing."""
        return self.given[0] if self.verb.returns_it else None


Wrong = Callable[[Any, Act], Any]
"""Calls a verb in a wrong way."""


class Refusal(NamedTuple):
    """An error that a verb must raise."""

    name: str
    words: str
    kind: ErrorKind
    when: Callable[[Any, Act], Any] = lambda *_: True
    """Whether an error of this kind is this one."""
    never: tuple[str, ...] = ()
    """Situations in which there is no such error."""


class Verb(NamedTuple):
    """A verb that acts."""

    verb: str
    chapters: tuple[str, ...]
    faults: tuple[str, ...]
    refusals: tuple[Refusal, ...] = ()
    never: tuple[str, ...] = ()
    """Situations in which it does nothing, or of which no law speaks."""
    returns_it: bool = False
    """Whether it returns what it acts on."""

    also: tuple[Situation, ...] = ()
    """Situations that it alone has, by what it is given."""

    @property
    def name(self) -> str:
        """Its name in those of mutants."""
        return "autograd-grad" if self.verb == "grad" else self.verb.strip("_").replace("_", "-")

    @property
    def words(self) -> str:
        return "autograd.grad" if self.verb == "grad" else self.verb


def _beside(mutant: Acting, act: Act) -> Any:
    """Act on the object before, too, as far as this makes sense."""
    other = mutant.the_one_before
    if other is not None:
        with suppress(Exception):
            act.old(other, *act.given[1:], **act.how)
    return act()


def _twice(_: Acting, act: Act) -> Any:
    act()
    return act()


def _nodes(mutant: Mutant, root: Any) -> Iterator[Any]:
    """Yield the Nodes of the graph of a root, of an edge, or of several of them."""
    roots = [each for each in _several(mutant, root) if _has_graph(mutant, each)]
    edges = [mutant.gradient_edge(each) if mutant.is_tensor(each) else each for each in roots]
    ahead, seen = [edge[0] for edge in edges], set[Any]()
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            ahead += mutant.node_next(node)


def _several(mutant: Mutant, root: Any) -> list[Any]:
    """Return roots as a list; an edge may be a tuple too."""
    is_list = type(root) is list or (type(root) is tuple and all(map(mutant.is_tensor, root)))
    return list(root) if is_list else [root]


def _has_graph(mutant: Mutant, root: Any) -> bool:
    return not mutant.is_tensor(root) or mutant.requires_grad(root)


def _leaves(mutant: Mutant, act: Act) -> list[Any]:
    """Return the leaves into which a pass may accumulate."""
    leaves = [leaf for node in _nodes(mutant, act.given[0]) if (leaf := mutant.leaf_of(node)) is not None]
    inputs = act.how.get("inputs")
    return leaves if inputs is None else [leaf for leaf in leaves if any(leaf is each for each in inputs)]


def _copied(mutant: Mutant, leaf: Any) -> Any:
    grad = mutant.grad_of(leaf)
    return None if grad is None else mutant.clone(mutant.detach(grad))


def _accumulates(change: Callable[[Any, Any], Any]) -> Wrong:
    """Return a pass after which each .grad is what ``(before, after)`` returns."""

    def wrong(mutant: Acting, act: Act) -> None:
        before = [(leaf, _copied(mutant, leaf)) for leaf in _leaves(mutant, act)]
        act()
        with mutant.enable_grad() if act.how.get("create_graph") else mutant.no_grad():
            for leaf, grad in before:
                after = mutant.grad_of(leaf)
                mutant.set_grad(leaf, None if after is None else change(grad, after))

    return wrong


def _overwritten(mutant: Acting, act: Act) -> None:
    for leaf in _leaves(mutant, act):
        mutant.set_grad(leaf, None)
    act()


def _doubled(_: Acting, act: Act) -> Any:
    return tuple(None if grad is None else grad + grad for grad in act())


def _constant(mutant: Acting, act: Act) -> Any:
    found = act()
    if not act.how.get("create_graph"):
        return found
    for leaf in [leaf for leaf in _leaves(mutant, act) if found is None and mutant.grad_of(leaf) is not None]:
        mutant.set_grad(leaf, mutant.detach(mutant.grad_of(leaf)))
    return found and tuple(None if grad is None else mutant.detach(grad) for grad in found)


def _unretained(mutant: Any, act: Act) -> None:
    alive = [each for each in mutant.retaining if each() is not None and not mutant.is_leaf(each())]
    before = [(each, mutant.grad_of(each())) for each in alive]
    act()
    for each, grad in before:
        mutant.set_grad(each(), grad)


def _lost(_: Acting, act: Act) -> Any:
    return act.result


def _uncheckpointed(_: Acting, act: Act) -> Any:
    function, *inputs = act.given
    return function(*inputs, **{name: value for name, value in act.how.items() if name not in OF_CHECKPOINTS})


def _in_one_piece(_: Acting, act: Act) -> Any:
    functions, _segments, value = act.given
    for function in functions:
        value = function(value)
    return value


OF_CHECKPOINTS = {"use_reentrant", "early_stop", "determinism_check", "context_fn", "preserve_rng_state", "debug"}
FAULTS: dict[str, tuple[str, Wrong]] = {
    "lost": ("{} does nothing", _lost),
    "reaches-the-one-before": ("{} acts on the object before, too", _beside),
    "twice": ("{} acts twice", _twice),
    "accumulates-nothing": ("{} accumulates no gradients", _accumulates(lambda before, _: before)),
    "accumulates-twice": (
        "{} accumulates gradients twice",
        _accumulates(lambda before, after: after + after if before is None else after + after - before),
    ),
    "overwrites": ("{} overwrites the gradients from before", _overwritten),
    "doubles": ("{} returns twice the gradients", _doubled),
    "frees": ("{} frees the graph, also with retain_graph=True", lambda _, act: act(retain_graph=False)),
    "retains": ("{} retains the graph, whatever it is told", lambda _, act: act(retain_graph=True)),
    "creates-no-graph": ("{} creates no graph, also with create_graph=True", _constant),
    "retains-no-gradient": ("{} gives nothing to the tensors that retain their gradients", _unretained),
    "recomputes-nothing": ("{} saves what it is to recompute", _uncheckpointed),
    "in-one-piece": ("{} saves what it is to recompute", _in_one_piece),
}


class _Following(Acting):
    """A mutant that knows which graphs a pass has freed."""

    watched = Acting.watched
    ran = "ran in a pass that did not retain the graph"
    """What it writes into the metadata of Nodes."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        with self._noting(root, how):
            super().backward(root, gradient, **how)

    def grad(self, outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        with self._noting(outputs, how):
            return super().grad(outputs, inputs, grad_outputs, **how)

    def backward_from_all(self, roots: Sequence[Any], gradients: Sequence[Any] | None = None) -> None:
        with self._noting(roots, {}):
            super().backward_from_all(roots, gradients)

    def backward_from_edge(self, edge: Any, gradient: Any = None) -> None:
        with self._noting(edge, {}):
            super().backward_from_edge(edge, gradient)

    @contextmanager
    def _noting(self, root: Any, how: Mapping[str, Any]) -> Generator[None]:
        nodes = [*_nodes(self, root)]
        yield
        if not (how.get("create_graph") if how.get("retain_graph") is None else how["retain_graph"]):
            for node in nodes:
                self.node_metadata(node)[self.ran] = True

    def has_run(self, root: Any) -> bool:
        """Whether a part of the graph has been freed."""
        return any(self.ran in self.node_metadata(node) for node in _nodes(self, root))


class _Retaining(Acting):
    """A mutant that knows on which tensors retain_grad was called."""

    watched = Acting.watched
    retaining = fresh(list[Any])

    def retain_grad(self, tensor: Any) -> None:
        super().retain_grad(tensor)
        self.retaining.append(weakref.ref(tensor))


def made(verb: Verb, situation: Situation, wrong: Wrong, base: type[Acting] = Acting) -> type[Mutant]:
    """Return a mutant that calls a verb in a wrong way."""

    def run(self: Any, old: Hook, *given: Any, **how: Any) -> Any:
        act = Act(verb, old, given, how)
        return wrong(self, act) if self.is_in(situation, verb.verb, *given, **how) else act()

    return overriding(verb.verb, base=base)(run)


def refusing(verb: Verb, situation: Situation, refusal: Refusal) -> type[Mutant]:
    """Return a mutant in which a verb does nothing instead of raising an error."""

    def wrong(mutant: Any, act: Act) -> Any:
        is_this = refusal.when(mutant, act)
        try:
            return act()
        except mutant.errors.get(refusal.kind, (RuntimeError,)):
            if not is_this:
                raise
            return act.result

    return made(verb, situation, wrong, base=_Following if refusal.when is _freed else Acting)


def _is_one(mutant: Mutant, root: Any) -> bool:
    return all(size == 1 for size in mutant.shape(root))


def _seeds(mutant: Mutant, act: Act, place: int) -> list[tuple[Any, Any]]:
    """Return each root of a pass with its gradient."""
    roots = _several(mutant, act.given[0])
    found = act.given[place] if len(act.given) > place else act.how.get("gradient", act.how.get("grad_outputs"))
    return list(zip(roots, found if type(found) in {list, tuple} else [found] * len(roots), strict=False))


def _without_gradient(place: int) -> Callable[[Any, Act], bool]:
    def when(mutant: Mutant, act: Act) -> bool:
        without = [root for root, grad in _seeds(mutant, act, place) if grad is None and mutant.is_tensor(root)]
        return not all(_is_one(mutant, root) for root in without)

    return when


def _freed(mutant: Any, act: Act) -> bool:
    return mutant.has_run(act.given[0])


FREED = Refusal("freed", "{} through a freed graph does nothing", ErrorKind.GRAPH_FREED, _freed)


def _unseeded(place: int, never: tuple[str, ...] = ()) -> Refusal:
    """Return the error of a pass that lacks the gradient of a root."""
    words = "{} needs no gradient of a root that is not a scalar"
    return Refusal("unseeded", words, ErrorKind.ROOT_GRADIENT, _without_gradient(place), never=never)


UNUSED = Refusal(
    "unused",
    "{} accepts inputs that were not used",
    ErrorKind.UNUSED_INPUT,
    lambda _, act: not act.how.get("allow_unused"),
)
OF_A_VIEW = Refusal("of-a-view", "{} accepts a view", ErrorKind.VIEW_DETACHED)


CREATING = Situation("create-graph", "that creates a graph", lambda mutant, _: mutant.how.get("create_graph"))
RETAINED = Situation("retained", "that retains the graph", lambda mutant, _: mutant.how.get("retain_graph"))
OF_BACKWARD = (
    CREATING,
    RETAINED,
    Situation("inputs", "that is limited to inputs", lambda mutant, _: mutant.how.get("inputs")),
    Situation("seeded", "that is given a gradient", lambda mutant, _: mutant.is_given(1, "gradient")),
)
OF_GRAD = (
    CREATING,
    RETAINED,
    Situation("several-inputs", "for several inputs", lambda mutant, _: mutant.is_given_several(1)),
    Situation("several-outputs", "of several outputs", lambda mutant, _: mutant.is_given_several(0)),
    Situation("seeded", "that is given gradients", lambda mutant, _: mutant.is_given(2, "grad_outputs")),
)
SEEDED = OF_BACKWARD[-1:]
ACCUMULATES = ("lost", "accumulates-nothing", "accumulates-twice", "overwrites")
ACTS = ("lost", "reaches-the-one-before")
IN_PLACES = tuple(each.name for each in ELSEWHERE)
ONCE = ("same-object",)
"""To do it again changes nothing, or is an error."""
RECORDING = ("in-no-grad",)
"""A checkpoint in no_grad records nothing, so there is nothing to recompute."""
NESTED = (*RECORDING, "in-a-checkpoint")
"""Whether an outer checkpoint is recomputed, too, is not said."""
CONFLICT = Refusal(
    "conflict",
    "{} accepts materialize_grads=True together with allow_unused=False",
    ErrorKind.UNUSED_CONFLICT,
    lambda _, act: act.how.get("materialize_grads") and act.how.get("allow_unused") is False,
    never=(*(name for name in IN_PLACES if name != "after-a-failure"), "create-graph", "retained"),
)
"""The rule on it needs no capability that other places and other options take."""
VERBS = (
    Verb(
        "backward",
        ("backward", "grad-accum", "retain-graph", "threads", "tensor-hook"),
        (*ACCUMULATES, "frees", "retains", "creates-no-graph", "retains-no-gradient"),
        (FREED, _unseeded(1, never=("seeded",))),
        also=OF_BACKWARD,
    ),
    Verb(
        "backward_from_all",
        ("backward", "retain-graph", "tensor-hook"),
        (*ACCUMULATES, "retains-no-gradient"),
        (FREED, _unseeded(1)),
        never=ONCE,
        also=SEEDED,
    ),
    Verb(
        "backward_from_edge",
        ("backward", "gradient-edge", "retain-graph", "tensor-hook"),
        (*ACCUMULATES, "retains-no-gradient"),
        (FREED,),
        never=ONCE,
    ),
    Verb(
        "grad",
        ("backward", "grad", "create-graph", "retain-graph", "threads", "tensor-hook"),
        ("doubles", "frees", "retains", "creates-no-graph"),
        (FREED, _unseeded(2), UNUSED, CONFLICT),
        also=OF_GRAD,
    ),
    Verb("retain_grad", ("retain-grad", "order"), ("lost",), never=ONCE),
    Verb("set_grad", ("backward", "grad-accum", "zero-grad"), ACTS),
    Verb("detach_", ("requires-grad", "detach", "retain-grad"), ACTS, (OF_A_VIEW,), never=ONCE, returns_it=True),
    Verb("mul_", ("inplace", "saved-tensor", "tensor-hook.inplace"), (*ACTS, "twice"), returns_it=True),
    Verb("requires_grad_", ("requires-grad", "grad-accum"), ACTS, never=ONCE, returns_it=True),
    Verb("set_requires_grad", ("requires-grad", "leaf"), ACTS),
    Verb("increment_version", ("version", "inplace"), ("lost",)),
    Verb("zero_grad", ("zero-grad", "optim"), ACTS),
    Verb("step", ("optim", "zero-grad"), ("lost", "twice"), never=IN_PLACES[1:]),
    Verb("module_zero_grad", ("module.zero-grad", "module.switches"), ACTS),
    Verb("module_requires_grad_", ("module.requires-grad", "module.switches"), ACTS, returns_it=True),
    Verb("train", ("module.evaluation-mode",), ("lost",), never=("later-object", *IN_PLACES), returns_it=True),
    Verb("load_state_dict", ("load-state-dict", "optim", "state-dict"), ("lost",), never=IN_PLACES[1:]),
    Verb("checkpoint", ("checkpoint",), ("recomputes-nothing",), never=RECORDING),
    Verb("checkpoint_sequential", ("checkpoint-sequential", "checkpoint"), ("in-one-piece",), never=NESTED),
)
"""No page says what a step, `train` and `load_state_dict` do, so nothing is said of where they are called."""


RIGHT = {("retains", "retained"), ("retains-no-gradient", "inputs")}
"""Where a fault is none."""
CHAPTERS = {"creates-no-graph": ("create-graph",), "retains-no-gradient": ("retain-grad",)}
"""The chapters of a fault, if they are not those of the verb."""


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for verb in VERBS:
        for situation in [each for each in (ALWAYS, *OF_CALLS, *verb.also) if each.name not in verb.never]:
            said = f"a call of {verb.words} {situation.words}"
            for fault in verb.faults:
                if (fault, situation.name) not in RIGHT:
                    words, wrong = FAULTS[fault]
                    name = f"{verb.name}-{fault}-{situation.name}"
                    base = _Retaining if wrong is _unretained else Acting
                    chapters = CHAPTERS.get(fault, verb.chapters)
                    yield name, words.format(said), chapters, made(verb, situation, wrong, base)
            for each in [refusal for refusal in verb.refusals if situation.name not in refusal.never]:
                name = f"{verb.name}-{each.name}-accepted-{situation.name}"
                yield name, each.words.format(said), verb.chapters, refusing(verb, situation, each)


vars().update(named(*each) for each in _all())
