"""Where PyTorch departs from the documentation: each departure can be turned on by its name, and none is on by itself.

With all of them on the engine plays PyTorch 2.13 in eager mode, which makes a difference found by comparing news.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import NamedTuple

SILENT = "the documentation is silent"


class Flag(NamedTuple):
    """One departure: what PyTorch does instead, which rule or page that breaks, and where it was reported."""

    name: str
    says: str
    why: str = SILENT
    issue: str = ""


TORCH: Mapping[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag(
            "retain-grad-before-pre-hooks",
            "a retained gradient is what the tensor hooks of its Node have left, without its pre-hooks",
            why="order.retain-grad-before-node-prehook",
        ),
        Flag(
            "capture-before-tensor-hooks",
            "grad returns for a tensor what its hooks were given, if another input needs its Node executed",
            why="tensor-hook.replace.autograd-grad.executed",
        ),
        Flag(
            "one-root-is-reached",
            "the hooks of the root fire also where no input is behind it, if it is the only root",
        ),
        Flag(
            "unneeded-gradients-are-none",
            "a Node computes the gradients that its pass needs, and None for the others; that of a custom Function all",
        ),
        Flag(
            "post-accumulate-without-gradient",
            "post-accumulate hooks run also where no gradient has arrived and nothing was accumulated",
            why="post-acc.after-accumulate.no-gradient",
        ),
        Flag(
            "post-accumulate-returns-none",
            "a post-accumulate hook that returns anything but None or its own tensor is an error",
            why="post-acc.doc-example-returns-tensor",
        ),
        Flag(
            "views-of-gradients-become-grad",
            "a gradient that is a view of another one, or that post-hooks are given, becomes .grad without a copy: "
            "to change one changes both",
            why="post-acc.in-place-grad.others",
            issue="https://github.com/pytorch/pytorch/issues/34082",
        ),
        Flag(
            "views-leave-their-node",
            "an in-place operation on a view, or on what it shares its numbers with, gives it a new Node without hooks",
            why="tensor-hook.inplace.view-before",
            issue="https://github.com/pytorch/pytorch/issues/8874",
        ),
        Flag(
            "hooks-on-a-view-join-the-first",
            "a hook put on a view that had hooks before its base was changed goes to their Node, and never runs",
            why="tensor-hook.inplace.view-after-alias",
            issue="https://github.com/pytorch/pytorch/issues/196459",
        ),
        Flag(
            "retained-gradients-are-mixed-up",
            "an in-place operation on any output of a Node moves along the retained gradient of the first one",
            why="retain-grad.inplace.several-outputs",
        ),
        Flag(
            "split-parts-stay-as-they-are",
            "a part made by split is not to be changed in place, nor used once the split tensor was changed",
        ),
        Flag(
            "a-function-changes-the-view-it-is-given-first",
            "of a custom Function that changes a view in place the first gradient is taken for that of the view",
            why="custom-function.mark-dirty.view",
        ),
        Flag(
            "changed-by-a-function-loses-its-gradient",
            "a tensor that a custom Function changes in place loses the gradient that it has retained",
        ),
        Flag(
            "once-differentiable-gradients-are-constants",
            "a gradient from a backward that is differentiable once is a constant, unless one that it was given is not",
            why="custom-function.once-differentiable.part",
        ),
        Flag(
            "refused-changes-of-inference-tensors-are-made",
            "to change in place what was made in inference mode is an error outside of it, but the numbers are changed",
        ),
        Flag(
            "detached-inference-tensors-may-be-changed",
            "what is detached from a tensor made in inference mode, and shares its numbers, can be changed in place",
        ),
        Flag(
            "views-under-no-grad-require-grad",
            "a view made under no_grad requires grad if its base does, without history, and stays as it is",
            why="mode.no-grad.result.view",
            issue="https://github.com/pytorch/pytorch/issues/11390",
        ),
        Flag(
            "a-pair-that-fails-to-pack-stays",
            "a pair that a saved tensor is given stays if its pack raises, and its unpack is called without argument",
        ),
        Flag("numbers-are-freed", "a product with a number saves the number, so its Node is executed once"),
        Flag("copies-into-a-base-are-freed", "the Node of an in-place operation on a view is executed once"),
        Flag(
            "pinning-copies",
            "save_on_cpu copies a tensor that is on the CPU, if memory is to be pinned",
            why="save-on-cpu.no-copy-on-cpu.pinned",
        ),
        Flag(
            "regions-are-reentrant-unless-told",
            "a checkpoint without use_reentrant is a reentrant one",
            why="checkpoint.use-reentrant-required",
            issue="https://github.com/pytorch/pytorch/issues/193711",
        ),
        Flag(
            "passes-inside-limited-ones-are-limited",
            "a reentrant checkpoint refuses a whole backward inside a pass that is limited to inputs",
            why="the docstring of torch.utils.checkpoint.checkpoint: a reentrant one supports backward without inputs",
        ),
        Flag(
            "changes-through-another-look-are-missed",
            "where saved tensors may be changed in place, a change through a view that begins elsewhere is missed",
            why="allow-mutation.works.part",
        ),
        Flag(
            "a-refused-context-ends-the-outer-one",
            "to enter allow_mutation_on_saved_tensors inside itself is refused, and ends what the outer one allows",
            why="allow-mutation.not-nested.outer",
        ),
        Flag(
            "global-hooks-after-a-failure-get-no-kwargs",
            "a global forward hook with always_call and with_kwargs is called without kwargs after an exception",
            why="module.forward.always-call.global.kwargs",
        ),
        Flag(
            "hooks-after-a-failure-stay-as-they-are",
            "a hook with always_call that adds or removes forward hooks after an exception puts another in its place",
        ),
        Flag(
            "a-hook-removed-meanwhile-gets-no-kwargs",
            "a forward hook or pre-hook with_kwargs that another one removes is still called, but without kwargs",
        ),
        Flag(
            "backward-pre-hooks-return-no-tensor",
            "a backward pre-hook of a module that returns a tensor, not a tuple, is an error",
            why="module.full-backward.return.bare-tensor",
            issue="https://github.com/pytorch/pytorch/issues/102645",
        ),
        Flag(
            "passes-share-the-gradients-of-a-module",
            "a backward inside another one takes away what a module's backward hooks of that one wait for",
            why="module.full-backward.retain-graph.nested",
        ),
        Flag(
            "hooks-of-states-and-steps-stay-as-they-are",
            "a hook on a registration, state or step that adds or removes one of these is an error if another follows",
        ),
        Flag(
            "multi-grad-hooks-take-no-constants",
            "a tensor that does not require grad is no error in mode any alone",
            why="multi-grad.requires-grad",
        ),
        Flag(
            "multi-grad-hooks-take-no-leaf-in-grad",
            "a multi-grad hook in mode all on a leaf is an error if grad is to return the leaf's gradient",
            why="multi-grad.all.autograd-grad-leaf",
            issue="https://github.com/pytorch/pytorch/issues/131753",
        ),
        Flag(
            "multi-grad-hooks-keep-their-nodes",
            "a multi-grad hook in mode all keeps the graphs of all its tensors, and so a leaf that has one for ever",
        ),
        Flag(
            "multi-grad-hooks-miss-a-lone-root",
            "a multi-grad hook in mode all does not count a root that is the only one: it runs without it, or never",
            why="multi-grad.all.root",
        ),
        Flag(
            "passes-share-the-count-of-a-multi-grad-hook",
            "a backward inside another one changes for how many gradients a multi-grad hook waits in that one",
            why="multi-grad.all.once.nested",
        ),
        Flag(
            "the-first-gradient-may-be-none",
            "a multi-grad hook in mode any is called with None for an unused output, and not for the gradient after it",
            why="multi-grad.any.first-only.unused-output",
        ),
    )
}
"""In the order in which a pass, then a graph, meets them."""


class _Active:
    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.met: set[str] = set()


_active = _Active()


def on(name: str) -> bool:
    """Tell whether the engine departs from the documentation here, as PyTorch does."""
    if name not in _active.names:
        return False
    _active.met.add(name)
    return True


def met() -> frozenset[str]:
    """Return those of the flags turned on that a program has come by since: no other can have changed what it shows."""
    return frozenset(_active.met)


def use(names: Iterable[str]) -> None:
    """Turn on these flags, in every thread, and no others."""
    _active.names, _active.met = known(names), set()


def known(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set; ValueError for one that names no flag."""
    given = frozenset(names)
    for name in sorted(given - TORCH.keys()):
        near = get_close_matches(name, TORCH, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(TORCH)}"
        raise ValueError(f"no flag of the reference engine is called {name!r}: {hint}")
    return given


@contextmanager
def playing(names: Iterable[str]) -> Generator[None]:
    """Turn on these flags and no others until the end of the block."""
    before = _active.names
    use(names)
    try:
        yield
    finally:
        _active.names = before
