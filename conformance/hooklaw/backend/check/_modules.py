"""Probes of modules, optimizers and their state."""

from typing import Any

from hooklaw.backend.capabilities import Capability
from hooklaw.backend.check._hooks import handle
from hooklaw.backend.check._probe import Tried, probe

ON_MODULES = {
    "register_full_backward_pre_hook": Capability.MODULE_BACKWARD_PRE_HOOKS,
    "register_full_backward_hook": Capability.MODULE_BACKWARD_HOOKS,
}
LEAST_REPLICAS = 2


def made_module(tried: Tried) -> Any:
    """Return a module that multiplies by its parameter."""
    weight = tried.tensor([3.0])
    return tried.module({"weight": weight}, lambda module, x: x * module.weight)


@probe(Capability.MODULES)
def modules(tried: Tried) -> None:
    """A module's call runs its forward, in which its parameter is an attribute that requires grad."""
    module = made_module(tried)
    try:
        result, weight = module(tried.tensor([2.0])), module.weight
    except Exception as error:  # noqa: BLE001 - whatever it raises is what came
        given = 'module({"weight": ...}, forward)(x)'
        mend = "make the module callable, with its parameters as attributes"
        tried.refuse("module", given, "what forward returns", f"{type(error).__name__}: {error}", mend)
    tried.expect([6.0], "tolist", tried.named(result, "module(tensor([2.0]))"))
    tried.expect(True, "requires_grad", tried.named(weight, "module.weight"), mend="a parameter requires grad")


@probe(Capability.MODULES)
def module_hooks(tried: Tried) -> None:
    """Hooks on modules have handles."""
    module = made_module(tried)
    verbs = ["register_forward_pre_hook", "register_forward_hook"]
    for verb in [*verbs, *(verb for verb, needs in ON_MODULES.items() if tried.can(needs))]:
        handle(tried, verb, module, lambda *_: None).remove()


@probe(Capability.GLOBAL_MODULE_HOOKS)
def global_module_hooks(tried: Tried) -> None:
    """Hooks on all modules have handles."""
    for verb in Capability.GLOBAL_MODULE_HOOKS.verbs:
        handle(tried, verb, lambda *_: None).remove()


@probe(Capability.MODULES, Capability.MODULE_SWITCHES)
def switches(tried: Tried) -> None:
    """A module can be put in evaluation mode, and its parameters can be frozen."""
    module = made_module(tried)
    tried.train(module, mode=False)
    tried.expect(False, "is_training", module, mend="train(module, mode=False) puts a module in evaluation mode")
    tried.module_requires_grad_(module, requires_grad=False)
    mend = "module_requires_grad_(module, requires_grad=False) freezes the module's parameters"
    tried.expect(False, "requires_grad", tried.named(module.weight, "module.weight"), mend=mend)


@probe(Capability.MODULES, Capability.STATE_DICT)
def states(tried: Tried) -> None:
    """The state of a module is a dict that it can load."""
    module = made_module(tried)
    state = tried.state_dict(module)
    if not isinstance(state, dict) or "weight" not in state:
        got = (
            f"{type(state).__name__} of {sorted(map(str, state))}" if isinstance(state, dict) else type(state).__name__
        )
        mend = "return the module's state by the names of its parameters"
        tried.refuse("state_dict", "state_dict(module)", "a dict with 'weight'", got, mend)
    tried.load_state_dict(module, state)


@probe(Capability.OPTIMIZERS)
def optimizers(tried: Tried) -> None:
    """SGD changes a parameter by its gradient, and its hooks have handles."""
    weight = tried.tensor([3.0], requires_grad=True)
    tried.set_grad(weight, tried.tensor([2.0]))
    optimizer = tried.sgd([weight], lr=0.5)
    for verb in ("register_step_pre_hook", "register_step_post_hook"):
        handle(tried, verb, optimizer, lambda *_: None).remove()
    tried.step(optimizer)
    tried.expect([2.0], "tolist", weight, mend="a step of plain SGD subtracts lr * gradient from the parameter")


@probe(Capability.DATA_PARALLEL)
def replicas(tried: Tried) -> None:
    """Replicas are counted, and there are at least two."""
    count = tried.replica_count()
    if type(count) is not int or count < LEAST_REPLICAS:
        mend = "return how many replicas data_parallel runs"
        tried.fault("replica_count", "replica_count()", "an int, at least 2", repr(count), mend)
