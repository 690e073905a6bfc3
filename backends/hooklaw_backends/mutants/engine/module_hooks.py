"""Mutants whose modules depart from the documentation as PyTorch's own do."""

from hooklaw.model import boundary, module
from hooklaw_backends.mutants.base import Hook
from hooklaw_backends.mutants.inside import Inside, instead_of


class KeywordArgumentsLostAfterAFailure(Inside):
    """A hook on all modules has no keyword arguments where forward fails."""

    @instead_of(module, "on")
    def loses(self, old: Hook, flag: str) -> bool:
        return flag == "global-hooks-after-a-failure-get-no-kwargs" or old(flag)


class PassesShareTheGradientsOfAModule(Inside):
    """A backward inside another one takes away what a module's backward hooks wait for in the outer one."""

    @instead_of(boundary, "on")
    def shares(self, old: Hook, flag: str) -> bool:
        return flag == "passes-share-the-gradients-of-a-module" or old(flag)


class BackwardPreHookOfAModuleReturnsTuplesAlone(Inside):
    """A backward pre-hook of a module that returns a tensor, not a tuple, is an error."""

    @instead_of(boundary, "on")
    def refuses(self, old: Hook, flag: str) -> bool:
        return flag == "backward-pre-hooks-return-no-tensor" or old(flag)
