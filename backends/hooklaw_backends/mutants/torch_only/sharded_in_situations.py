"""Mutants of sharded modules that are wrong in one rank, from some pass on, or for another module than the first.

No rule need name them: a row has the beginnings of the ids of the rules that must catch its mutants.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from torch import distributed

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.torch_only.distributed_tensors import is_distributed
from hooklaw_backends.mutants.torch_only.groups_of_ranks import own_replica
from hooklaw_backends.mutants.torch_only.ranks_in_situations import (
    Its,
    Make,
    Placed,
    Row,
    There,
    Wrong,
    cells,
    hooked,
    lost,
    twice,
    uncalled,
    without,
)
from hooklaw_backends.mutants.torch_only.sharding import own_part, tensors_in, unhooked, zero

Step = Callable[[Any], None]
"""Does something wrong to a module, or to reduced gradients."""


def _sharding(install: Callable[[Any, Step, Callable[[], bool]], None], step: Step) -> Make:
    """Return what makes a mutant that runs ``(module, step, is_there)`` after a module was sharded.

    `is_there` counts a call, and returns whether the step is to be done in it.
    """

    def make(there: There) -> type[Mutant]:
        def shard(self: Any, old: Hook, module: Any, **options: Any) -> Any:
            made, its = old(module, **options), self.its("modules", module)
            install(made, step, lambda: _is_there(self, there, its))
            return made

        return overriding("fully_shard", base=Placed)(shard)

    return make


def _is_there(mutant: Placed, there: There, its: Its) -> bool:
    its.calls += 1
    return there(mutant, its)


def _before_forward(module: Any, step: Step, is_there: Callable[[], bool]) -> None:
    module.register_forward_pre_hook(lambda *_: step(module) if is_there() else None)


def _after_forward(module: Any, step: Step, is_there: Callable[[], bool]) -> None:
    module.register_forward_hook(lambda *_: step(module) if is_there() else None)


def _before_backward(module: Any, step: Step, is_there: Callable[[], bool]) -> None:
    def after(_: Any, __: Any, output: Any) -> None:
        if is_there():
            for each in filter(lambda tensor: tensor.requires_grad, tensors_in(output)):
                each.register_hook(lambda _: step(module))

    module.register_forward_hook(after)


def _after_reduction(module: Any, step: Step, is_there: Callable[[], bool]) -> None:
    module.set_all_reduce_hook(lambda reduced: step(reduced) if is_there() else None)


def _zero_others(module: Any) -> None:
    zero(module, after=1)


def _keep_first(module: Any) -> None:
    """Give whole parameters the values that they had when this was first done."""
    parameters = [*module.parameters(recurse=False)]
    first = module.__dict__.setdefault("first values", [each.detach().clone() for each in parameters])
    for each, value in zip(parameters, first, strict=True):
        each.data.copy_(value)


def _turn(module: Any) -> None:
    """Put the rows of whole parameters where those of other ranks belong."""
    for each in module.parameters(recurse=False):
        each.data.copy_(each.detach().flip(0))


def _stay_whole(module: Any) -> None:
    module.set_reshard_after_forward(False, recurse=False)


def _stay_whole_after_backward(module: Any) -> None:
    module.set_reshard_after_backward(False)


def _after(verb: str, step: Step) -> Make:
    """Return what makes a mutant that does something wrong to a module after a verb."""

    def make(there: There) -> type[Mutant]:
        def run(self: Any, old: Hook, module: Any) -> None:
            old(module)
            if there(self, self.call_of(verb, module)):
                step(module)

        return overriding(verb, base=Placed)(run)

    return make


class _KnowsModules(Placed):
    """A mutant that keeps the modules that are sharded."""

    def fully_shard(self, module: Any, **options: Any) -> Any:
        self.kept.append(module)
        return super().fully_shard(module, **options)


def _for_all(verb: str) -> Make:
    """Return what makes a mutant in which a verb sets something for all sharded modules."""

    def make(_: There) -> type[Mutant]:
        def run(self: Any, old: Hook, _module: Any, **options: Any) -> None:
            for each in self.kept:
                old(each, **options)

        return overriding(verb, base=_KnowsModules)(run)

    return make


def _forward_method(wrong: Wrong) -> Make:
    """Return what makes a mutant that calls ``(method, registered, *inputs)`` in place of a forward method."""

    def make(there: There) -> type[Mutant]:
        def register(self: Any, old: Hook, module: Any, name: str) -> None:
            method = getattr(module, name)
            old(module, name)
            registered, its = getattr(module, name), self.its("methods", module)

            def called(*inputs: Any, **named: Any) -> Any:
                is_wrong = _is_there(self, there, its)
                return wrong(method, registered, *inputs, **named) if is_wrong else registered(*inputs, **named)

            if registered is not method:
                setattr(module, name, called)

        return overriding("register_fsdp_forward_method", base=Placed)(register)

    return make


def _comm_hook(wrong: Wrong) -> Make:
    """Return what makes a mutant that calls ``(wrapper, hook, state, *given)`` in place of a wrapper's hook."""

    def make(there: There) -> type[Mutant]:
        def register(self: Any, old: Hook, wrapper: Any, state: Any, hook: Hook) -> None:
            its = self.its("hooks", wrapper)

            def called(state: Any, *given: Any) -> None:
                if _is_there(self, there, its):
                    wrong(wrapper, hook, state, *given)
                else:
                    hook(state, *given)

            old(wrapper, state, called)

        return overriding("register_comm_hook", base=Placed)(register)

    return make


def _keeps_own_gradients(there: There) -> type[Mutant]:
    """Make a mutant in which each rank keeps the part of its own gradient."""

    def wrap(self: Any, old: Hook, module: Any, **options: bool) -> Any:
        made = old(module, **options)
        its = self.its("wrappers", made)

        def hook(_: Any, gradient: Any, part: Any) -> None:
            own = gradient.split(len(part))[distributed.get_rank()].clone()
            unhooked(made)(gradient, part)
            if _is_there(self, there, its):
                part.copy_(own)

        if not options.get("no_shard"):
            made.register_comm_hook(None, hook)
        return made

    return overriding("fully_sharded_data_parallel", base=Placed)(wrap)


def _no_sync_lost(there: There) -> type[Mutant]:
    """Make a mutant in which no_sync does nothing."""

    def no_sync(self: Any, old: Hook, parallel: Any) -> Any:
        return nullcontext() if there(self, self.call_of("no_sync", parallel)) else old(parallel)

    return overriding("no_sync", base=Placed)(no_sync)


def _unless_sharded(hook: Hook, module: Any, *given: Any) -> Any:
    """Call a hook of a module that is not sharded."""
    return None if hasattr(module, "unshard") else hook(module, *given)


WHOLE = (
    "fsdp.fully-shard.hooks",
    "fsdp.fully-shard.reshard-after-forward.false",
    "fsdp.fully-shard.groups",
    "fsdp.fully-shard.no-grad",
)
BACKWARD = ("fsdp.fully-shard.backward",)
GRADIENTS = ("fsdp.fully-shard.gradients", "fsdp.fully-shard.frozen")
ALL_REDUCE_HOOK = ("fsdp.all-reduce-hook",)
UNSHARD = ("fsdp.unshard-reshard",)
METHOD = ("fsdp.forward-method",)
COMM_HOOK = ("fsdp.comm-hook",)
NO_SYNC = ("fsdp.no-sync",)
PASS_OR_MODULE = ("third-call", "another")
ROWS: Mapping[str, Row] = {
    "gathered-zeros": Row(
        "the whole parameters of a sharded module are zeros in forward",
        _sharding(_before_forward, zero),
        WHOLE,
        PASS_OR_MODULE,
    ),
    "gathered-zeros-but-for-the-first": Row(
        "the whole parameters of a sharded module but the first are zeros in forward",
        _sharding(_before_forward, _zero_others),
        WHOLE,
        ("third-call",),
    ),
    "gathered-once": Row(
        "forward of a sharded module has the values of its first forward",
        _sharding(_before_forward, _keep_first),
        WHOLE,
        ("everywhere",),
    ),
    "gathered-in-another-order": Row(
        "forward of a sharded module has the parts of the ranks in another order",
        _sharding(_before_forward, _turn),
        WHOLE,
        ("everywhere",),
    ),
    "gathered-zeros-in-backward-but-for-the-first": Row(
        "the whole parameters of a sharded module but the first are zeros in backward",
        _sharding(_before_backward, _zero_others),
        BACKWARD,
        ("everywhere", "third-call", "rank-1"),
    ),
    "gathered-in-backward-once": Row(
        "backward through a sharded module has the values of its first backward",
        _sharding(_before_backward, _keep_first),
        ("fsdp.fully-shard.changed-between",),
        ("everywhere",),
    ),
    "parameters-stay-whole-after-forward": Row(
        "the parameters of a sharded module stay whole after forward",
        _sharding(_before_forward, _stay_whole),
        ("fsdp.fully-shard.reshard-after-forward.", *WHOLE),
        PASS_OR_MODULE,
    ),
    "parameters-are-parts-after-forward": Row(
        "the parameters of a sharded module are parts after forward",
        _sharding(_after_forward, lambda module: module.reshard()),
        ("fsdp.fully-shard.reshard-after-forward.",),
        PASS_OR_MODULE,
    ),
    "parameters-stay-whole-after-backward": Row(
        "the parameters of a sharded module stay whole after backward",
        _sharding(_before_forward, _stay_whole_after_backward),
        BACKWARD,
        ("third-call",),
    ),
    "own-gradients-kept": Row(
        "each rank keeps its part of its own gradients",
        _sharding(_after_reduction, own_part),
        GRADIENTS,
        (*PASS_OR_MODULE, "rank-1"),
    ),
    "reduced-gradients-tripled": Row(
        "the reduced gradients of a sharded module are three times too large",
        _sharding(_after_reduction, lambda reduced: reduced.mul_(3)),
        GRADIENTS,
        ("later",),
    ),
    "gradients-of-the-replica-kept": Row(
        "gradients are not reduced over the replicas",
        _sharding(_after_reduction, own_replica),
        ("fsdp.hybrid.gradients",),
        PASS_OR_MODULE,
    ),
    "fully-shard-lost": Row(
        "fully_shard does nothing",
        lost("fully_shard"),
        ("fsdp.fully-shard.shards", "fsdp.fully-shard.together", "fsdp.hybrid"),
        ("another",),
    ),
    "reshard-after-forward-ignored": Row(
        "reshard_after_forward is ignored",
        without("fully_shard", "reshard_after_forward"),
        ("fsdp.fully-shard.hooks", "fsdp.fully-shard.reshard-after-forward."),
        ("another",),
    ),
    "ignored-params-ignored": Row(
        "ignored_params is ignored",
        without("fully_shard", "ignored_params"),
        ("fsdp.fully-shard.ignored-params",),
        ("another",),
    ),
    "mesh-ignored": Row(
        "the mesh of a sharded module is ignored", without("fully_shard", "mesh"), ("fsdp.hybrid",), ("another",)
    ),
    "all-reduce-hook-lost": Row(
        "an all-reduce hook is not called",
        hooked(uncalled, "set_all_reduce_hook"),
        ALL_REDUCE_HOOK,
        (*PASS_OR_MODULE, "after-an-error"),
    ),
    "all-reduce-hook-given-a-copy": Row(
        "what an all-reduce hook does to its argument is lost",
        hooked(lambda hook, reduced: hook(reduced.clone()), "set_all_reduce_hook"),
        ALL_REDUCE_HOOK,
        ("another", "after-an-error"),
    ),
    "all-reduce-hook-twice": Row(
        "an all-reduce hook is called twice", hooked(twice, "set_all_reduce_hook"), ALL_REDUCE_HOOK, ("third-call",)
    ),
    "unshard-lost": Row("unshard does nothing", lost("unshard"), UNSHARD, PASS_OR_MODULE),
    "unshard-gives-zeros": Row("parameters are zeros after unshard", _after("unshard", zero), UNSHARD, ("third-call",)),
    "unshard-gives-first-values": Row(
        "parameters have the values of the first unshard", _after("unshard", _keep_first), UNSHARD, ("everywhere",)
    ),
    "reshard-lost": Row("reshard does nothing", lost("reshard"), UNSHARD, ("third-call",)),
    "gradient-sync-not-set": Row(
        "set_requires_gradient_sync does nothing",
        lost("set_requires_gradient_sync"),
        ("fsdp.no-gradient-sync",),
        ("another",),
    ),
    "gradient-sync-set-for-all": Row(
        "set_requires_gradient_sync sets it for all modules",
        _for_all("set_requires_gradient_sync"),
        ("fsdp.no-gradient-sync",),
        ("everywhere",),
    ),
    "all-reduce-not-set": Row(
        "set_requires_all_reduce does nothing", lost("set_requires_all_reduce"), ("fsdp.no-all-reduce",), ("another",)
    ),
    "forward-method-not-registered": Row(
        "registering a forward method does nothing",
        lost("register_fsdp_forward_method"),
        METHOD,
        ("later", "another"),
    ),
    "forward-method-without-hooks": Row(
        "a forward method runs without hooks",
        _forward_method(lambda method, _, *inputs, **named: method(*inputs, **named)),
        METHOD,
        ("third-call",),
    ),
    "forward-method-drops-keyword-arguments": Row(
        "a forward method gets no keyword arguments",
        _forward_method(lambda _, registered, *inputs, **__: registered(*inputs)),
        METHOD,
        ("everywhere",),
    ),
    "hook-of-a-sharded-module-lost": Row(
        "a hook on a sharded module is not called",
        hooked(_unless_sharded, *verbs.ON_ONE_MODULE),
        ("fsdp.fully-shard.module-hooks",),
        (*PASS_OR_MODULE, "rank-1"),
    ),
    "post-accumulate-hook-of-a-sharded-parameter-lost": Row(
        "a post-accumulate-grad hook on a sharded parameter is not called",
        hooked(uncalled, "register_post_accumulate_grad_hook", when=is_distributed),
        ("fsdp.fully-shard.post-accumulate-hooks",),
        ("third-call", "another", "second"),
    ),
    "comm-hook-of-a-sharded-wrapper-ignored": Row(
        "the communication hook of a sharded wrapper is not called",
        _comm_hook(lambda wrapper, _hook, _state, *given: unhooked(wrapper)(*given)),
        COMM_HOOK,
        PASS_OR_MODULE,
    ),
    "comm-hook-of-a-sharded-wrapper-given-copies": Row(
        "what the communication hook of a sharded wrapper stores is lost",
        _comm_hook(lambda _, hook, state, *given: hook(state, *(each.clone() for each in given))),
        COMM_HOOK,
        PASS_OR_MODULE,
    ),
    "comm-hook-of-a-sharded-wrapper-twice": Row(
        "the communication hook of a sharded wrapper is called twice",
        _comm_hook(lambda _, hook, *given: twice(hook, *given)),
        COMM_HOOK,
        ("third-call",),
    ),
    "comm-hook-of-a-sharded-wrapper-without-state": Row(
        "the communication hook of a sharded wrapper gets None as its state",
        _comm_hook(lambda _, hook, _state, *given: hook(None, *given)),
        COMM_HOOK,
        ("another",),
    ),
    "own-gradients-kept-by-a-sharded-wrapper": Row(
        "each rank keeps its part of its own gradients",
        _keeps_own_gradients,
        ("fsdp.frozen-parameters", *NO_SYNC),
        PASS_OR_MODULE,
    ),
    "sharded-wrapper-lost": Row(
        "a sharded wrapper of a module is the module itself",
        lost("fully_sharded_data_parallel"),
        ("fsdp.parameters-are-views",),
        ("another",),
    ),
    "no-sync-of-a-sharded-wrapper-lost": Row(
        "no_sync of a sharded wrapper does nothing", _no_sync_lost, NO_SYNC, PASS_OR_MODULE
    ),
}
"""The faults of which there is a mutant for each of some situations.

Left out is what goes wrong under no_grad, of which one rule speaks, and in rank 0 alone, since each fault dies there
where it dies in rank 1.
"""

vars().update(cells(ROWS, __name__))
