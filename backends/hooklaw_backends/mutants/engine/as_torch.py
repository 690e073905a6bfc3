"""Mutants that depart from the documentation as PyTorch does: the engine with one of its flags on."""

from hooklaw.model import flags
from hooklaw_backends.mutants.inside import Inside


class _Departs(Inside):
    """A mutant with one flag of the engine turned on."""

    flag = ""

    def reset(self) -> None:
        super().reset()
        flags.use([self.flag])


class PostAccumulateWithoutGradient(_Departs):
    """Post-accumulate hooks run even if no gradient was accumulated."""

    flag = "post-accumulate-without-gradient"


class RetainedGradientsAreMixedUp(_Departs):
    """An in-place operation on any output of a Node moves the retained gradient of the Node's first output."""

    flag = "retained-gradients-are-mixed-up"


class ViewsUnderNoGradRequireGrad(_Departs):
    """A view created under no_grad requires grad if its base does."""

    flag = "views-under-no-grad-require-grad"


class KeywordArgumentsLostAfterAFailure(_Departs):
    """A global module hook gets no keyword arguments if forward raises."""

    flag = "global-hooks-after-a-failure-get-no-kwargs"


class PassesShareTheGradientsOfAModule(_Departs):
    """A backward inside another backward takes away the gradients that a module's backward hooks wait for."""

    flag = "passes-share-the-gradients-of-a-module"


class BackwardPreHookOfAModuleReturnsTuplesAlone(_Departs):
    """A full backward pre-hook that returns a tensor instead of a tuple is an error."""

    flag = "backward-pre-hooks-return-no-tensor"


class MultiGradHookMissesTheRoot(_Departs):
    """A multi-grad hook does not count the tensor from which backward starts."""

    flag = "multi-grad-hooks-miss-a-lone-root"


class MultiGradHookCountsWhatAnInnerPassNeeds(_Departs):
    """A multi-grad hook waits for the number of gradients that an inner backward computes."""

    flag = "passes-share-the-count-of-a-multi-grad-hook"


class MultiGradHookAnyTakesNoneForAGradient(_Departs):
    """A multi-grad hook in mode any takes the None of an unused output for the first gradient."""

    flag = "the-first-gradient-may-be-none"


class MultiGradHookRefusesConstants(_Departs):
    """A multi-grad hook on a tensor that does not require grad is an error."""

    flag = "multi-grad-hooks-take-no-constants"


class RefusedMutationContextEndsTheOuterOne(_Departs):
    """Entering allow_mutation_on_saved_tensors inside itself is an error, and ends the outer context."""

    flag = "a-refused-context-ends-the-outer-one"
