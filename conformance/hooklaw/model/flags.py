"""Flags: each turns on one departure of PyTorch from the documentation. None is on by default.

With all of them on, the engine does what PyTorch 2.13 does in eager mode, so a difference between them is a finding.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from hooklaw.errors import did_you_mean

SILENT = "the documentation is silent"


class Flag(NamedTuple):
    """One departure: what PyTorch does, which rule or page that breaks, and the issue that reports it."""

    name: str
    says: str
    why: str = SILENT
    issue: str = ""


TORCH: Mapping[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag(
            "retain-grad-before-pre-hooks",
            "a retained gradient is what the tensor hooks returned, before the pre-hooks of its Node",
            why="order.retain-grad-before-node-prehook",
        ),
        Flag(
            "passes-with-inputs-retain-everything",
            "a backward with inputs also sets the .grad of tensors that retain it and are not among the inputs",
            why="backward.inputs.others-ignored",
        ),
        Flag(
            "constant-outputs-are-an-error",
            "backward and autograd.grad refuse a root that does not require grad, even if its gradient is None",
            why="grad.grad-outputs.constant",
        ),
        Flag(
            "a-detached-tensor-still-retains",
            "retains_grad stays true after detach_, which made the tensor a leaf",
            why="retain-grad.flag.detached",
        ),
        Flag(
            "capture-before-tensor-hooks",
            "grad returns the gradient that a tensor's hooks were given, if another input needs its Node executed",
            why="tensor-hook.replace.autograd-grad.executed",
        ),
        Flag(
            "one-root-is-reached",
            "the hooks of the root fire even if no input is behind it, if it is the only root",
        ),
        Flag(
            "unneeded-gradients-are-none",
            "a Node returns None for gradients that its pass does not need, except the Node of a custom Function",
        ),
        Flag(
            "post-accumulate-without-gradient",
            "post-accumulate-grad hooks run even if no gradient arrived and nothing was accumulated",
            why="post-acc.after-accumulate.no-gradient",
        ),
        Flag(
            "post-accumulate-returns-none",
            "a post-accumulate hook that returns anything but None or its own tensor is an error",
            why="post-acc.doc-example-returns-tensor",
        ),
        Flag(
            "post-accumulate-hooks-are-lost-in-silence",
            "serializing a tensor does not warn of its post-accumulate hooks",
            why="post-acc.serialize.warns",
        ),
        Flag(
            "views-of-gradients-become-grad",
            "a gradient that is a view, or that post-hooks are given, becomes .grad without a copy",
            why="post-acc.in-place-grad.others",
            issue="https://github.com/pytorch/pytorch/issues/34082",
        ),
        Flag(
            "views-leave-their-node",
            "an in-place operation on a view, or on a tensor that shares its data, gives it a new Node without hooks",
            why="tensor-hook.inplace.view-before",
            issue="https://github.com/pytorch/pytorch/issues/8874",
        ),
        Flag(
            "hooks-on-a-view-join-the-first",
            "a hook registered on a view that had hooks before its base was changed goes to their Node, and never runs",
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
            "an output of split cannot be changed in place, nor used after an in-place change of the split tensor",
        ),
        Flag(
            "a-function-changes-the-view-it-is-given-first",
            "if a custom Function changes a view in place, its first gradient is taken for that of the view",
            why="custom-function.mark-dirty.view",
        ),
        Flag(
            "changed-by-a-function-loses-its-gradient",
            "a tensor that a custom Function changes in place loses its retained gradient",
        ),
        Flag(
            "once-differentiable-gradients-are-constants",
            "a gradient from a once_differentiable backward is a constant, unless an incoming gradient requires grad",
            why="custom-function.once-differentiable.part",
        ),
        Flag(
            "refused-changes-of-inference-tensors-are-made",
            "an in-place change of an inference tensor outside of inference mode is an error, but changes the data",
        ),
        Flag(
            "detached-inference-tensors-may-be-changed",
            "a tensor detached from an inference tensor, with the same data, can be changed in place",
        ),
        Flag(
            "views-under-no-grad-require-grad",
            "a view made under no_grad requires grad if its base does, and has no history",
            why="mode.no-grad.result.view",
            issue="https://github.com/pytorch/pytorch/issues/11390",
        ),
        Flag(
            "a-pair-that-fails-to-pack-stays",
            "a pair registered on a saved tensor stays if its pack raises, and its unpack is called without argument",
        ),
        Flag("numbers-are-freed", "a product with a number saves the number, so its Node can be executed only once"),
        Flag("copies-into-a-base-are-freed", "the Node of an in-place operation on a view can be executed only once"),
        Flag(
            "pinning-copies",
            "save_on_cpu with pin_memory copies a tensor that is already on the CPU",
            why="save-on-cpu.no-copy-on-cpu.pinned",
        ),
        Flag(
            "regions-are-reentrant-unless-told",
            "a checkpoint without use_reentrant is a reentrant one",
            why="checkpoint.use-reentrant-required",
            issue="https://github.com/pytorch/pytorch/issues/193711",
        ),
        Flag(
            "offloaded-operations-run-again",
            "a selective checkpoint runs an operation again although its policy is an offload",
            why="checkpoint.selective.offloaded",
        ),
        Flag(
            "passes-inside-limited-ones-are-limited",
            "a reentrant checkpoint refuses a backward without inputs inside a pass with inputs",
            why="the docstring of torch.utils.checkpoint.checkpoint: a reentrant one supports backward without inputs",
        ),
        Flag(
            "changes-through-another-look-are-missed",
            "allow_mutation_on_saved_tensors misses a change through a view with another offset",
            why="allow-mutation.works.part",
        ),
        Flag(
            "a-refused-context-ends-the-outer-one",
            "entering allow_mutation_on_saved_tensors inside itself is an error, and ends the outer context",
            why="allow-mutation.not-nested.outer",
        ),
        Flag(
            "global-hooks-after-a-failure-get-no-kwargs",
            "a global forward hook with always_call and with_kwargs is called without kwargs after an exception",
            why="module.forward.always-call.global.kwargs",
        ),
        Flag(
            "hooks-after-a-failure-stay-as-they-are",
            "a hook with always_call that adds or removes forward hooks after an exception raises another exception",
        ),
        Flag(
            "a-hook-removed-meanwhile-gets-no-kwargs",
            "a forward hook or pre-hook with_kwargs that another hook removes is still called, but without kwargs",
        ),
        Flag(
            "backward-pre-hooks-return-no-tensor",
            "a backward pre-hook of a module that returns a tensor, not a tuple, is an error",
            why="module.full-backward.return.bare-tensor",
            issue="https://github.com/pytorch/pytorch/issues/102645",
        ),
        Flag(
            "passes-share-the-gradients-of-a-module",
            "a nested backward takes the gradients that a module's backward hooks wait for in the outer one",
            why="module.full-backward.retain-graph.nested",
        ),
        Flag(
            "hooks-of-states-and-steps-stay-as-they-are",
            "a registration, state or step hook that adds or removes such hooks is an error if another hook follows",
        ),
        Flag(
            "multi-grad-hooks-take-no-constants",
            "a tensor that does not require grad is an error, except in mode any",
            why="multi-grad.requires-grad",
        ),
        Flag(
            "multi-grad-hooks-take-no-leaf-in-grad",
            "a multi-grad hook in mode all on a leaf is an error if grad returns the leaf's gradient",
            why="multi-grad.all.autograd-grad-leaf",
            issue="https://github.com/pytorch/pytorch/issues/131753",
        ),
        Flag(
            "multi-grad-hooks-keep-their-nodes",
            "a multi-grad hook in mode all keeps the graphs of all its tensors alive, and so a leaf for ever",
        ),
        Flag(
            "multi-grad-hooks-miss-a-lone-root",
            "a multi-grad hook in mode all does not wait for a root that is the only one: it runs without it, or never",
            why="multi-grad.all.root",
        ),
        Flag(
            "passes-share-the-count-of-a-multi-grad-hook",
            "a nested backward changes how many gradients a multi-grad hook waits for in the outer one",
            why="multi-grad.all.once.nested",
        ),
        Flag(
            "the-first-gradient-may-be-none",
            "a multi-grad hook in mode any is called with None for an unused output, not with the next gradient",
            why="multi-grad.any.first-only.unused-output",
        ),
    )
}
"""Every flag by name."""


class _Active:
    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.met: set[str] = set()


_active = _Active()


def on(name: str) -> bool:
    """Whether this flag is on; note that it was met."""
    if name not in _active.names:
        return False
    _active.met.add(name)
    return True


def met() -> frozenset[str]:
    """Return the active flags that `on` was asked for since `use`; no other flag can have had an effect."""
    return frozenset(_active.met)


def use(names: Iterable[str]) -> None:
    """Turn on exactly these flags, in every thread."""
    _active.names, _active.met = known(names), set()


def known(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set; ValueError for an unknown name."""
    given = frozenset(names)
    for name in sorted(given - TORCH.keys()):
        hint = did_you_mean(name, TORCH, f"known are {', '.join(TORCH)}")
        raise ValueError(f"the reference engine has no flag {name!r}: {hint}")
    return given


@contextmanager
def playing(names: Iterable[str]) -> Generator[None]:
    """Turn on exactly these flags until the end of the block."""
    before = _active.names
    use(names)
    try:
        yield
    finally:
        _active.names = before
