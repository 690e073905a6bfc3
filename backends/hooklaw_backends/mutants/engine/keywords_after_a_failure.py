"""Mutants of the keyword arguments that global hooks get of a failed call, of which torch gives none."""

from functools import wraps
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding


def _keywords_after_a_failure(step: Hook) -> type[Mutant]:
    """Make a mutant whose global hooks with always_call=True get of a failed call ``(kwargs, nr, failures)``.

    It is given the keyword arguments, how many such hooks were registered before, and the calls that failed before.
    """

    @overriding("register_module_forward_hook")
    @wraps(step)
    def register(self: Mutant, old: Hook, hook: Hook, **options: bool) -> Any:
        failures, nr = list[None](), len(self.kept)
        self.kept.append(hook)

        def run(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
            if output is None:
                kwargs = step(self, kwargs, nr, len(failures))
                failures.append(None)
            return hook(module, args, kwargs, output)

        return old(run if options.get("with_kwargs") and options.get("always_call") else hook, **options)

    return register


@_keywords_after_a_failure
def keyword_arguments_of_later_global_hooks_lost_after_a_failure(
    self: Mutant, kwargs: Any, nr: int, _failures: int
) -> Any:
    """If forward raises, a global module hook that is not the first gets no keyword arguments."""
    return {} if nr else kwargs


@_keywords_after_a_failure
def keyword_arguments_lost_after_the_first_failure(self: Mutant, kwargs: Any, _nr: int, failures: int) -> Any:
    """If forward raises again, a global module hook gets no keyword arguments."""
    return {} if failures else kwargs


@_keywords_after_a_failure
def keyword_arguments_but_the_first_lost_after_a_failure(self: Mutant, kwargs: Any, *_: int) -> Any:
    """If forward raises, a global module hook gets the first of several keyword arguments alone."""
    return dict(list(kwargs.items())[:1])


@_keywords_after_a_failure
def keyword_arguments_that_are_none_lost_after_a_failure(self: Mutant, kwargs: Any, *_: int) -> Any:
    """If forward raises, a global module hook gets no keyword argument that is None."""
    return {name: value for name, value in kwargs.items() if value is not None}
