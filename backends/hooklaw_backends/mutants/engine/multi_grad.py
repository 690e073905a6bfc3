"""Mutants whose hook on several tensors departs from the documentation as PyTorch's own does."""

from hooklaw.model import engine, multi_grad
from hooklaw_backends.mutants.base import Hook
from hooklaw_backends.mutants.inside import Inside, instead_of


class MultiGradHookMissesTheRoot(Inside):
    """A multi-grad hook does not count the tensor that backward starts from."""

    @instead_of(engine, "on")
    def misses(self, old: Hook, flag: str) -> bool:
        return flag == "multi-grad-hooks-miss-a-lone-root" or old(flag)


class MultiGradHookCountsWhatAnInnerPassNeeds(Inside):
    """A multi-grad hook waits in a backward for as many gradients as one inside it computes."""

    @instead_of(multi_grad, "on")
    def shares(self, old: Hook, flag: str) -> bool:
        return flag == "passes-share-the-count-of-a-multi-grad-hook" or old(flag)


class MultiGradHookAnyTakesNoneForAGradient(Inside):
    """In mode any the gradient of an output that nothing uses is the first one."""

    @instead_of(multi_grad, "on")
    def takes(self, old: Hook, flag: str) -> bool:
        return flag == "the-first-gradient-may-be-none" or old(flag)


class MultiGradHookRefusesConstants(Inside):
    """A multi-grad hook on a tensor that does not require grad is an error."""

    @instead_of(multi_grad, "on")
    def refuses(self, old: Hook, flag: str) -> bool:
        return flag == "multi-grad-hooks-take-no-constants" or old(flag)
