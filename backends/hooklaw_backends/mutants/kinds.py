"""The kinds of hooks of which there is a mutant for each fault and each situation."""

from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any, NamedTuple

from hooklaw_backends.mutants.base import Mutant
from hooklaw_backends.mutants.situations import ANY, EITHER, IN_FORWARD, IN_PASS, Situation

Given = tuple[Any, ...]
Another = Callable[[Mutant, Given], Given]
"""Makes of the arguments of a hook wrong ones."""


def doubled(mutant: Mutant, value: Any) -> Any:
    """Return a value with each tensor in it doubled; a sum saves nothing."""
    if mutant.is_tensor(value):
        return value + value
    if isinstance(value, dict):
        return {key: doubled(mutant, each) for key, each in value.items()}
    return type(value)(doubled(mutant, each) for each in value) if type(value) in (list, tuple) else value


def _doubled_at(place: int) -> Another:
    """Return what doubles the tensors in one argument."""
    return lambda mutant, given: (*given[:place], doubled(mutant, given[place]), *given[place + 1 :])


def _with_grad_doubled(mutant: Mutant, given: Given) -> Given:
    """Return a copy of a leaf that has twice its gradient."""
    (leaf,) = given
    copy, grad = mutant.clone(mutant.detach(leaf)), mutant.grad_of(leaf)
    mutant.set_grad(copy, None if grad is None else doubled(mutant, mutant.detach(grad)))
    return (copy,)


def _another_optimizer(mutant: Mutant, given: Given) -> Given:
    return mutant.sgd([mutant.tensor([1.0], requires_grad=True)], lr=1.0), *given[1:]


def _another_module(mutant: Mutant, given: Given) -> Given:
    return mutant.module({}, lambda _, x: x), *given[1:]


def _another_child(mutant: Mutant, given: Given) -> Given:
    return *given[:-1], mutant.module({}, lambda _, x: x)


def _copied(_: Mutant, given: Given) -> Given:
    """Return arguments with a copy of the state or of the lists of keys, which a hook may change."""
    return *given[:1], *(copy(each) if isinstance(each, dict) else deepcopy(each) for each in given[1:2]), *given[2:]


class Kind(NamedTuple):
    """A kind of hook."""

    words: str
    verbs: tuple[str, ...]
    situations: tuple[Situation, ...]
    chapters: tuple[str, ...]
    """How the ids of the rules begin that are tried first."""
    has_result: bool = True
    mode: str = ""
    """The mode of a multi-grad hook."""
    never: tuple[str, ...] = ()
    """Situations in which it does not run, or of which no law speaks."""
    without: tuple[str, ...] = ()
    """Faults of which no law speaks."""
    another: Another = doubled
    beside: Another | None = None
    """The same of what a hook gets beside the value that it may replace, if it gets more."""
    owner: Another | None = None
    """The same of the owner, if the hook gets it beside values."""
    copied: Another | None = None
    """Makes copies of what a hook may change, if it may."""
    unordered: str = ""
    """Why several of one owner may run in any order, if they may."""


OF_ALL = "the documentation orders hooks on all modules before those of one module, but not among themselves"
OF_ALL_IN_BACKWARD = ("module.global-full", "module.global.backward")
OF_ALL_IN_FORWARD = (
    "module.global-forward",
    "module.forward.always-call.global",
    "module.forward.global",
    "module.forward-pre.global",
)
"""The chapters of hooks on all modules, but for their handles: those have mutants of their own, and dear rules."""
OF_SEVERAL = "the notes order hooks of the same type for the same tensor or Node, and this is for several tensors"
OBSERVED = "no page orders them; that they run in order of registration is seen in torch alone"


def _of_steps(words: str, verb: str) -> Kind:
    """Return a kind of hook around an optimizer's step; those before it may return other arguments."""
    result = "_pre_" in verb
    return Kind(words, (verb,), ANY, ("optim",), has_result=result, another=_another_optimizer, unordered=OBSERVED)


def _of_states(words: str, verb: str) -> Kind:
    """Return a kind of hook around a state dict; `prepend` orders those of an optimizer, but nothing a module's."""
    is_given = verb != "register_state_dict_pre_hook"
    made = Kind(words, (verb,), ANY, ("state-dict",), is_given, another=_another_module, unordered=OBSERVED)
    return made._replace(copied=_copied if is_given else None)


def _of_registrations(words: str, verb: str, another: Another = doubled) -> Kind:
    """Return a kind of hook that runs when a module gets something."""
    return Kind(words, (verb,), ANY, ("registration-hook",), another=another, unordered=OBSERVED)


def _legacy(words: str, verb: str, never: tuple[str, ...] = ()) -> Kind:
    """Return a kind of legacy backward hook: its docstring says that it runs, but not what it gets and returns."""
    tried = tuple(each for each in BACKWARD if each in ANY or each.name in REACHED)
    never = ("another-thread", *never)
    return Kind(words, (verb,), tried, ("module.legacy",), never=never, without=UNSAID, unordered=OBSERVED)


BACKWARD = (*EITHER, *IN_PASS)
FORWARD = (*EITHER, *IN_FORWARD)
OTHERS = ("made-in-a-module", "made-in-three-modules")
"""A hook on all modules that is registered in the forward of one may run for that call."""
REACHED = ("made-in-a-pass", "made-in-a-module", "second-pass", "inner-pass")
"""Situations of legacy hooks that need no capability beside those of the rules on them."""
UNSAID = ("ignored", "swallowed", "in-wrong-mode", "given-another")
"""Faults of legacy hooks in what no page says."""
KINDS = {
    "tensor-hook": Kind("a tensor hook", ("register_hook",), BACKWARD, ("tensor-hook",)),
    "post-accumulate-hook": Kind(
        "a post-accumulate hook",
        ("register_post_accumulate_grad_hook",),
        BACKWARD,
        ("post-acc",),
        has_result=False,
        never=("autograd-grad", "inner-grad", "several-outputs"),
        another=_with_grad_doubled,
    ),
    "node-pre-hook": Kind("a Node pre-hook", ("node_register_prehook",), BACKWARD, ("node-prehook", "node-hook")),
    "node-hook": Kind("a Node hook", ("node_register_hook",), BACKWARD, ("node-hook",), beside=_doubled_at(1)),
    "multi-grad-hook": Kind(
        "a multi-grad hook",
        ("register_multi_grad_hook",),
        BACKWARD,
        ("multi-grad",),
        has_result=False,
        mode="all",
        unordered=OF_SEVERAL,
    ),
    "any-grad-hook": Kind(
        "a multi-grad hook in mode any",
        ("register_multi_grad_hook",),
        BACKWARD,
        ("multi-grad",),
        has_result=False,
        mode="any",
        unordered=OF_SEVERAL,
    ),
    "backward-pre-hook": Kind(
        "a module's backward pre-hook",
        ("register_full_backward_pre_hook",),
        BACKWARD,
        ("module.full-backward",),
        owner=_another_module,
    ),
    "backward-hook": Kind(
        "a module's backward hook",
        ("register_full_backward_hook",),
        BACKWARD,
        ("module.full-backward",),
        beside=_doubled_at(2),
        owner=_another_module,
    ),
    "global-backward-pre-hook": Kind(
        "a backward pre-hook on all modules",
        ("register_module_full_backward_pre_hook",),
        BACKWARD,
        OF_ALL_IN_BACKWARD,
        never=OTHERS,
        owner=_another_module,
        unordered=OF_ALL,
    ),
    "global-backward-hook": Kind(
        "a backward hook on all modules",
        ("register_module_full_backward_hook",),
        BACKWARD,
        OF_ALL_IN_BACKWARD,
        never=OTHERS,
        beside=_doubled_at(2),
        owner=_another_module,
        unordered=OF_ALL,
    ),
    "legacy-backward-hook": _legacy("a module's legacy backward hook", "register_backward_hook"),
    "global-legacy-backward-hook": _legacy(
        "a legacy backward hook on all modules", "register_module_backward_hook", never=OTHERS
    ),
    "forward-pre-hook": Kind(
        "a forward pre-hook", ("register_forward_pre_hook",), FORWARD, ("module.forward",), owner=_another_module
    ),
    "forward-hook": Kind(
        "a forward hook",
        ("register_forward_hook",),
        FORWARD,
        ("module.forward",),
        beside=_doubled_at(1),
        owner=_another_module,
    ),
    "global-forward-pre-hook": Kind(
        "a forward pre-hook on all modules",
        ("register_module_forward_pre_hook",),
        FORWARD,
        OF_ALL_IN_FORWARD,
        never=OTHERS,
        owner=_another_module,
        unordered=OF_ALL,
    ),
    "global-forward-hook": Kind(
        "a forward hook on all modules",
        ("register_module_forward_hook",),
        FORWARD,
        OF_ALL_IN_FORWARD,
        never=OTHERS,
        beside=_doubled_at(1),
        owner=_another_module,
        unordered=OF_ALL,
    ),
    "step-pre-hook": _of_steps("a step pre-hook", "register_step_pre_hook"),
    "step-post-hook": _of_steps("a step post-hook", "register_step_post_hook"),
    "global-step-pre-hook": _of_steps("a step pre-hook on all optimizers", "register_optimizer_step_pre_hook"),
    "global-step-post-hook": _of_steps("a step post-hook on all optimizers", "register_optimizer_step_post_hook"),
    "state-dict-pre-hook": _of_states("a state-dict pre-hook", "register_state_dict_pre_hook"),
    "state-dict-post-hook": _of_states("a state-dict post-hook", "register_state_dict_post_hook"),
    "load-pre-hook": _of_states("a load-state-dict pre-hook", "register_load_state_dict_pre_hook"),
    "load-post-hook": _of_states("a load-state-dict post-hook", "register_load_state_dict_post_hook"),
    "parameter-registration-hook": _of_registrations(
        "a registration hook of parameters", "register_module_parameter_registration_hook"
    ),
    "buffer-registration-hook": _of_registrations(
        "a registration hook of buffers", "register_module_buffer_registration_hook"
    ),
    "module-registration-hook": _of_registrations(
        "a registration hook of modules", "register_module_module_registration_hook", another=_another_child
    ),
}
