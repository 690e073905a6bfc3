"""Mutants that do what PyTorch does against its documentation: the engine with one of its flags on."""

from hooklaw.model import flags
from hooklaw_backends.mutants.inside import Inside


class _Plays(Inside):
    flag = ""

    def reset(self) -> None:
        super().reset()
        flags.use([self.flag])


class PostAccumulateWithoutGradient(_Plays):
    """Post-accumulate hooks run where nothing was accumulated."""

    flag = "post-accumulate-without-gradient"


class RetainedGradientsAreMixedUp(_Plays):
    """An in-place operation on one output of a Node moves along what the first of them retains."""

    flag = "retained-gradients-are-mixed-up"


class ViewsUnderNoGradRequireGrad(_Plays):
    """A view made under no_grad requires grad if its base does."""

    flag = "views-under-no-grad-require-grad"
