"""Mutants that are wrong with hooks on leaves in one kind of pass: an engine may treat what it accumulates apart.

No rule need name them: the rules whose ids begin with the kind's `chapters` are tried first, then all others.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.faults import FAULTS, Call, Wrong
from hooklaw_backends.mutants.in_situations import named, tried_in
from hooklaw_backends.mutants.situations import IN_PASS, Knowing, Situation


class Kind(NamedTuple):
    """A kind of hook on leaves."""

    words: str
    verb: str
    is_of_leaf: Callable[[Mutant, Any], bool]
    """Whether what the hook is registered on is a leaf, its Node, or several leaves."""
    chapters: tuple[str, ...]
    has_result: bool = False
    mode: str = "all"
    """The mode of a multi-grad hook."""
    never: tuple[str, ...] = ("autograd-grad", "inner-grad")
    """Situations in which it does not run, or which other mutants try."""


def _are_leaves(mutant: Mutant, tensors: Any) -> bool:
    return all(map(mutant.is_leaf, tensors))


def _is_of_leaf(mutant: Mutant, node: Any) -> bool:
    return mutant.leaf_of(node) is not None


KINDS = {
    "tensor-hook-of-a-leaf": Kind(
        "a tensor hook of a leaf",
        "register_hook",
        lambda mutant, tensor: mutant.is_leaf(tensor),
        ("tensor-hook",),
        has_result=True,
        never=(),
    ),
    "node-pre-hook-of-a-leaf": Kind(
        "a pre-hook of a leaf's Node", "node_register_prehook", _is_of_leaf, ("node-prehook",), has_result=True
    ),
    "node-hook-of-a-leaf": Kind("a post-hook of a leaf's Node", "node_register_hook", _is_of_leaf, ("node-hook",)),
    "multi-grad-hook-of-leaves": Kind(
        "a multi-grad hook on leaves", "register_multi_grad_hook", _are_leaves, ("multi-grad",)
    ),
    "any-grad-hook-of-leaves": Kind(
        "a multi-grad hook in mode any on leaves",
        "register_multi_grad_hook",
        _are_leaves,
        ("multi-grad",),
        mode="any",
        never=(),
    ),
}
SITUATIONS = (
    "create-graph",
    "inputs",
    "autograd-grad",
    "several-roots",
    "edge-root",
    "no-grad-pass",
    "inner-pass",
    "inner-grad",
)


def _made(kind: Kind, situation: Situation, wrong: Wrong) -> type[Mutant]:
    """Return a mutant with a fault of hooks of a kind in a situation."""

    def register(self: Any, old: Hook, owner: Any, hook: Hook, **options: Any) -> Any:
        if options.get("mode", "all") != kind.mode or not kind.is_of_leaf(self, owner):
            return old(owner, hook, **options)
        its = self.registration(kind.verb)

        def run(*given: Any) -> Any:
            call = Call(hook, given)
            return wrong(self, call) if situation.holds(self, its) else call()

        run.__dict__.update(getattr(hook, "__dict__", {}))  # the mark of an unserializable hook, say
        return old(owner, run, **options)

    return overriding(kind.verb, base=Knowing)(register)


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    situations = [each for each in IN_PASS if each.name in SITUATIONS]
    for of, kind in KINDS.items():
        for fault in ("lost", "twice", "in-wrong-mode", "swallowed", *(["ignored"] if kind.has_result else [])):
            words, wrong = FAULTS[fault]
            for situation in [each for each in situations if each.name not in kind.never]:
                said = words.format(f"{kind.words} {situation.words}")
                made = tried_in(_made(kind, situation, wrong), fault, situation)
                yield f"{of}-{fault}-{situation.name}", said, kind.chapters, made


vars().update(named(*each) for each in _all())
