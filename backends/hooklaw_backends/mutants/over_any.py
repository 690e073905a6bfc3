"""Any backend, with the further methods that mutants need as far as its verbs give them.

A mutant of it calls the backend's own verbs. It notes what it asked for in vain: that is the reason why it does not
apply to the backend.
"""

import importlib
from collections.abc import Callable
from operator import truediv
from typing import Any, NoReturn

from hooklaw.backend.capabilities import Capability, capabilities_of, said_of, verbs_of
from hooklaw.backend.protocol import VERBS, Backend
from hooklaw.backend.torchlike import named
from hooklaw_backends.mutants.base import Hook

INSIDE = "what a framework keeps inside"
EXTRAS = {
    "gradient_edge": INSIDE,
    "leaf_of": INSIDE,
    "hooks_of": INSIDE,
    "step_pre_hooks_of": INSIDE,
    "base_of": INSIDE,
    "version_of": INSIDE,
    "is_for_inference": INSIDE,
    "has_pair": INSIDE,
    "drop_pairs": INSIDE,
    "forbidden": INSIDE,
    "forbid_pairs": INSIDE,
    "allow_pairs": INSIDE,
    "overwrite": "another operation",
    "overwrite_unseen": "another operation",
    "cast": "another operation",
    "contiguous": "another operation",
    "strided": "another operation",
}
"""Methods of `OverTorch` that no verb gives, and what each is."""


KINS = {
    "torch-eager": ("hooklaw_backends.torch_eager", "over_torch", "OverTorch"),
    "reference": ("hooklaw.model.adapter", "over_reference", "OverReference"),
}
"""For the two backends whose mutants look inside: its module, and the module and class that have those methods."""


class LacksVerbError(NotImplementedError):
    """A mutant called a verb that its original lacks."""


class OverAny:
    """The base of every mutant of a backend, and itself the backend without a fault; `base_over` makes it for one."""

    original = ""
    inner: Any
    """The backend."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        """What was asked for in vain, in words."""
        for name in ("name", "capabilities", "lacks", "errors", "versions", "notes", "expectations"):
            setattr(self, name, getattr(self.inner, name))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(type(self).inner, name)

    def reset(self) -> None:
        """Reset the backend, if it can be."""
        getattr(self.inner, "reset", lambda: None)()

    @property
    def product(self) -> tuple[Any, Hook]:
        """The class of tensors, and its product; mutants replace it."""
        made: list[Any] = [type(self.inner.tensor([1.0], requires_grad=each)) for each in (True, False)]
        tensors, constants = made
        if tensors is not constants:
            self.lack("a class that all tensors are of")
        try:
            tensors.__mul__ = original = tensors.__mul__
        except TypeError:
            self.lack("a class of tensors in which the product can be replaced")
        return tensors, original

    def quotient(self, left: Any, right: Any) -> Any:
        return truediv(left, right)

    def laid_out_like(self, tensor: Any, other: Any) -> Any:
        """Return the tensor, if it has the other tensor's strides or strides cannot be read."""
        if Capability.STRIDES in self.inner.capabilities and self.inner.stride(tensor) != self.inner.stride(other):
            self.lack("another operation, laid_out_like")
        return tensor

    def lack(self, what: str) -> NoReturn:
        """Note what is missing, and give up."""
        if what not in self.missing:
            self.missing.append(what)
        raise LacksVerbError(f"this mutant needs {what}")


def base_over(backend: Backend, spec: str) -> type[OverAny]:
    """Return the base of the mutants of a backend, which its user calls `spec`."""
    has = verbs_of(backend.capabilities)
    members: dict[str, Any] = {verb: _passing(verb) if verb in has else _lacking(verb, backend) for verb in VERBS}
    members |= {name: _unknown(name, what) for name, what in EXTRAS.items()}
    for kin in kin_of(backend):
        members |= _extras(kin)
    return type("OverAny", (OverAny,), {**members, "inner": backend, "original": spec})


def kin_of(backend: Backend) -> list[str]:
    """Return torch-eager or reference if the backend is derived from it, e.g. is torch on another device."""
    modules = {made.__module__ for made in type(backend).__mro__}
    return [kin for kin, (module, _, _) in KINS.items() if module in modules]


def _extras(kin: str) -> dict[str, Any]:
    _, module, name = KINS[kin]
    base = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    extras = [*EXTRAS, "product", "quotient", "laid_out_like"]
    return {**{name: vars(base)[name] for name in extras}, "reset": _resetting(base)}


def _resetting(base: type) -> Callable[[OverAny], None]:
    """Return a reset that also undoes what a mutant may have done to saved-tensor hooks."""
    after = [vars(base)[name] for name in ("allow_pairs", "drop_pairs")]

    def reset(self: OverAny) -> None:
        OverAny.reset(self)
        for undo in after:
            undo(self)

    return reset


def _passing(verb: str) -> Hook:
    return named(lambda self, *given, **options: getattr(self.inner, verb)(*given, **options), verb)


def _lacking(verb: str, backend: Backend) -> Hook:
    what = f"{verb}, which belongs to {said_of(capabilities_of(verb), backend.lacks)}"
    return named(lambda self, *_, **__: self.lack(what), verb)


def _unknown(name: str, what: str) -> Hook:
    return named(lambda self, *_, **__: self.lack(f"{what}, {name}, which no verb gives"), name)
