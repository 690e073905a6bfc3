"""Mutants whose contexts do not begin, do not end or reach too far in one situation, made as those of verbs are.

They are the grad modes and, inside two others of their kind, the contexts of saved tensors, checkpoints and anomalies.
Left out are `save_on_cpu`, since only an accelerator shows where it applies, and `autocast`, of which this law says
only what a checkpoint makes of it.
"""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.situations import ALWAYS, OF_CALLS, THIRD, Acting, Situation
from hooklaw_backends.mutants.threads import everywhere

_never_left: list[AbstractContextManager[Any]] = []
"""Contexts that last in a thread that is not the rule's; one that is garbage collected would be left."""


class _Open:
    """A context that is open."""

    def __init__(self, context: AbstractContextManager[Any]) -> None:
        self.context, self.is_left = context, False

    def leave(self, error: BaseException | None = None) -> None:
        """Leave the context, unless it was left before."""
        if not self.is_left:
            self.is_left = True
            self.context.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)


class _Opening(Acting):
    """A mutant that knows which contexts are open in each thread; those that last end with what is around them."""

    _opened = fresh(threading.local)
    lasting = fresh(list[_Open])

    def reset(self) -> None:
        self.end_lasting()
        super().reset()

    def end_lasting(self, but: int = 0) -> None:
        """Leave the contexts that last, but so many of the first."""
        while len(self.lasting) > but:
            self.lasting.pop().leave()

    def opened(self, verb: str) -> list[_Open]:
        """Return the contexts of a verb that are open in this thread, the innermost last."""
        return self._opened.__dict__.setdefault(verb, [])

    def let_last(self, opened: _Open, place: int) -> None:
        """Do not leave a context before the one around it, or the rule; that of another thread ends with the thread."""
        if threading.get_ident() != self.home:
            _never_left.append(opened.context)
        else:
            self.lasting.insert(place, opened)  # before those that were entered inside it


Make = Callable[[], AbstractContextManager[Any]]


class Fault(NamedTuple):
    """What goes wrong with a context."""

    words: str
    is_entered: bool = True
    lasts: Callable[[BaseException | None], Any] = lambda _: False
    """Whether it is not left, given the error with which it ends."""
    ends: int = 0
    """How many contexts of the same kind around it are left with it."""
    is_everywhere: bool = False
    """Whether it applies in threads that start inside it, too."""


class Context(NamedTuple):
    """A context."""

    verb: str
    chapters: tuple[str, ...]
    faults: tuple[str, ...]
    never: tuple[str, ...] = ()
    """Situations in which it does nothing, or of which no law speaks."""

    @property
    def name(self) -> str:
        """Its name in those of mutants."""
        return self.verb.replace("_", "-")


def made(context: Context, fault: Fault, situation: Situation) -> type[Mutant]:
    """Return a mutant in which a context goes wrong in a situation."""

    def enter(self: Any, old: Hook, *given: Any, **how: Any) -> Any:
        return _Wrong(self, context, fault, situation, partial(old, *given, **how))

    return overriding(context.verb, base=_Opening)(enter)


class _Wrong:
    """A context that goes wrong if it is entered in the situation; it can be entered again."""

    def __init__(self, mutant: _Opening, context: Context, fault: Fault, situation: Situation, make: Make) -> None:
        self.mutant, self.context, self.fault, self.situation = mutant, context, fault, situation
        self.make, self.right, self.entries = make, make(), list[Any]()

    def __enter__(self) -> Any:
        self.entries.append(self.entry())
        return self.entries[-1].__enter__()

    def __exit__(self, *error: object) -> Any:
        return self.entries.pop().__exit__(*error)

    @contextmanager
    def entry(self) -> Generator[Any]:
        """Be inside the context once."""
        is_wrong = self.mutant.is_in(self.situation, self.context.verb)
        if is_wrong and not self.fault.is_entered:
            yield None
            return
        own = _Open(everywhere(self.make) if is_wrong and self.fault.is_everywhere else self.right)
        around = self.mutant.opened(self.context.verb)
        value, raised = own.context.__enter__(), None
        lasting = len(self.mutant.lasting)
        around.append(own)
        try:
            yield value
        except BaseException as error:
            raised = error
            raise
        finally:
            around.remove(own)
            if is_wrong and self.fault.lasts(raised):
                self.mutant.let_last(own, lasting)
            else:
                self.mutant.end_lasting(lasting)
                own.leave(raised)
            for each in around[::-1][: self.fault.ends if is_wrong else 0]:
                each.leave()


FAULTS = {
    "not-entered": Fault("{} has no effect", is_entered=False),
    "lasts": Fault("{} lasts after its block", lasts=lambda _: True),
    "lasts-after-an-error": Fault("{} lasts if an error leaves its block", lasts=lambda error: error),
    "ends-the-outer": Fault("{} ends the one around it, too", ends=1),
    "ends-those-around": Fault("{} ends the two around it, too", ends=2),
    "reaches-other-threads": Fault("{} applies in threads that start inside it, too", is_everywhere=True),
}
WITHIN = ("not-entered", "lasts", "lasts-after-an-error")
NESTED = (*WITHIN, "ends-the-outer")
ALL = (*NESTED, "reaches-other-threads")
CONTEXTS = (
    Context("no_grad", ("mode", "leaf", "module.evaluation-mode"), ALL, never=("in-no-grad",)),
    Context("enable_grad", ("mode",), NESTED),
    Context("inference_mode", ("mode", "module.evaluation-mode"), ALL, never=("in-no-grad",)),
)
PLAIN = (
    *CONTEXTS,
    Context("saved_tensors_hooks", ("saved-tensor",), ALL),
    Context("disable_saved_tensors_hooks", ("disable-hooks",), ALL),
    Context("set_checkpoint_early_stop", ("checkpoint",), NESTED),
    Context("set_checkpoint_debug_enabled", ("checkpoint",), NESTED),
    Context("detect_anomaly", ("detect-anomaly",), NESTED[-1:]),
)
"""Contexts that are wrong wherever they are entered."""
UNSEEN = {("ends-the-outer", "in-no-grad")}
"""The no_grad around it restores what was before, too."""
SITUATIONS = [each for each in OF_CALLS if each.name not in {"same-object", "later-object"}]
"""A context acts on no object."""


DEEP = (*NESTED, "ends-those-around")
THREE_DEEP = (
    Context("no_grad", ("mode",), DEEP),
    Context("enable_grad", ("mode",), DEEP),
    Context("inference_mode", ("mode",), DEEP),
    Context("saved_tensors_hooks", ("saved-tensor",), DEEP),
    Context("disable_saved_tensors_hooks", ("disable-hooks",), DEEP),
    Context("set_checkpoint_early_stop", ("checkpoint",), DEEP),
    Context("set_checkpoint_debug_enabled", ("checkpoint",), DEEP),
    Context("detect_anomaly", ("detect-anomaly",), DEEP[-1:]),
)
"""Contexts that are wrong inside two others of their kind; one more detection of anomalies changes nothing."""


def _inside_two(verb: str) -> Situation:
    """Return the situation that two contexts of a kind are open in this thread."""
    holds: Any = lambda mutant, _: len(mutant.opened(verb)) + 1 >= THIRD  # noqa: E731 - a def is no shorter
    return Situation("inside-two-others", "inside two others", holds)


def _each() -> Iterator[tuple[Context, Situation, str]]:
    """Yield each context, each of its situations, and the name of each of its faults there."""
    for context in PLAIN:
        yield from ((context, ALWAYS, fault) for fault in context.faults)
    for context in CONTEXTS:
        for situation in [each for each in SITUATIONS if each.name not in context.never]:
            yield from (
                (context, situation, fault) for fault in context.faults if (fault, situation.name) not in UNSEEN
            )
    for context in THREE_DEEP:
        yield from ((context, _inside_two(context.verb), fault) for fault in context.faults)


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for context, situation, fault in _each():
        said = FAULTS[fault].words.format(f"a call of {context.verb} {situation.words}")
        wrong = made(context, FAULTS[fault], situation)
        yield f"{context.name}-{fault}-{situation.name}", said, context.chapters, wrong


vars().update(named(*each) for each in _all())
