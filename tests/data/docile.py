"""Mutants for the tests of `hooklaw mutants`, and a rule that kills none of those it names."""

import time

from hooklaw.law.rule import Level, docstring, rule
from hooklaw.model.adapter import Reference
from hooklaw_backends.torch_eager import TorchEager


class DoesNothingWrong(TorchEager):
    """Is torch itself."""


class Handle:
    """A handle that removes nothing."""

    def remove(self):
        """Do nothing."""


class RemoveDoesNothing(TorchEager):
    """A handle's remove leaves the hook where it is."""

    def register_hook(self, tensor, hook):
        super().register_hook(tensor, hook)
        return Handle()


class Hangs(TorchEager):
    """Never returns from register_hook."""

    def register_hook(self, tensor, hook):
        time.sleep(600)


class HasABug(TorchEager):
    """Never gets as far as being wrong, for a mistake of its own."""

    def register_hook(self, tensor, hook):
        return hook.no_such_attribute


class NothingWrongInside(Reference):
    """Is the engine itself, and says that its vice is somewhere inside."""

    inside = True


def mutants(of):
    """Return the mutants of a backend."""
    return {
        "torch-eager": {
            "does-nothing-wrong": DoesNothingWrong,
            "tensor-hook-handle-removes-nothing": RemoveDoesNothing,
            "hangs": Hangs,
            "has-a-bug": HasABug,
        },
        "reference": {"does-nothing-wrong": NothingWrongInside},
    }[of]


@rule(
    "made-up.toothless",
    level=Level.MUST,
    sources=[docstring("torch.Tensor.sum")],
    mutants=["does-nothing-wrong", "never-built"],
)
def test_toothless(backend, trace):
    """Nothing breaks this rule."""
    trace.expect()
