"""Mutants that depart from the documentation as PyTorch does: the engine with one of its flags on."""

from hooklaw.model import flags
from hooklaw_backends.mutants.base import Maker, named_after
from hooklaw_backends.mutants.inside import Inside


class _Departs(Inside):
    """A mutant with one flag of the engine turned on."""

    flag = ""

    def reset(self) -> None:
        super().reset()
        flags.use([self.flag])


def departing(flag: str) -> Maker:
    """Make a mutant that is the engine with one of its flags on."""
    return lambda said: named_after(said, _Departs, flag=flag)


@departing("post-accumulate-without-gradient")
def post_accumulate_without_gradient() -> None:
    """Post-accumulate hooks run even if no gradient was accumulated."""


@departing("retained-gradients-are-mixed-up")
def retained_gradients_are_mixed_up() -> None:
    """An in-place operation on any output of a Node moves the retained gradient of the Node's first output."""


@departing("views-under-no-grad-require-grad")
def views_under_no_grad_require_grad() -> None:
    """A view created under no_grad requires grad if its base does."""


@departing("global-hooks-after-a-failure-get-no-kwargs")
def keyword_arguments_lost_after_a_failure() -> None:
    """A global module hook gets no keyword arguments if forward raises."""


@departing("passes-share-the-gradients-of-a-module")
def passes_share_the_gradients_of_a_module() -> None:
    """A backward inside another backward takes away the gradients that a module's backward hooks wait for."""


@departing("backward-pre-hooks-return-no-tensor")
def backward_pre_hook_of_a_module_returns_tuples_alone() -> None:
    """A full backward pre-hook that returns a tensor instead of a tuple is an error."""


@departing("multi-grad-hooks-miss-a-lone-root")
def multi_grad_hook_misses_the_root() -> None:
    """A multi-grad hook does not count the tensor from which backward starts."""


@departing("passes-share-the-count-of-a-multi-grad-hook")
def multi_grad_hook_counts_what_an_inner_pass_needs() -> None:
    """A multi-grad hook waits for the number of gradients that an inner backward computes."""


@departing("the-first-gradient-may-be-none")
def multi_grad_hook_any_takes_none_for_a_gradient() -> None:
    """A multi-grad hook in mode any takes the None of an unused output for the first gradient."""


@departing("multi-grad-hooks-take-no-constants")
def multi_grad_hook_refuses_constants() -> None:
    """A multi-grad hook on a tensor that does not require grad is an error."""


@departing("a-refused-context-ends-the-outer-one")
def refused_mutation_context_ends_the_outer_one() -> None:
    """Entering allow_mutation_on_saved_tensors inside itself is an error, and ends the outer context."""
