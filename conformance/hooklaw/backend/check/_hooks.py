"""Probes of the verbs that register hooks: each returns a handle, and hooks are given tensors."""

from typing import Any

from hooklaw.backend.capabilities import Capability
from hooklaw.backend.check._operations import context
from hooklaw.backend.check._probe import Tried, probe, promise

HANDLE = "return the handle: an object whose remove() takes the hook off"


def handle(tried: Tried, verb: str, *given: Any, **options: Any) -> Any:
    """Register a hook; anything but a handle is a fault."""
    made = tried.call(verb, *given, **options)
    if not callable(getattr(made, "remove", None)):
        text = tried.text_of(verb, given, options)
        tried.refuse(verb, text, "a handle with remove()", type(made).__name__, HANDLE)
    return made


def _quiet(*_: Any, **__: Any) -> None:
    """Do nothing."""


@probe(Capability.TENSOR_HOOKS)
def tensor_hooks(tried: Tried) -> None:
    """A tensor hook is given a gradient, a tensor with the tensor's shape, and can be removed."""
    x = tried.tensor([1.0, 2.0], requires_grad=True)
    seen: list[Any] = []
    registered = handle(tried, "register_hook", x, seen.append)
    tried.backward(tried.sum(tried.compute(x, "*", 3.0)))
    if len(seen) == 1:
        tried.named(seen[0], "what register_hook's hook is given")
        tried.expect_tensor(seen[0], "register_hook", "the gradient, a tensor")
        tried.expect((2,), "shape", seen[0])
    registered.remove()


@probe(Capability.RETAINS_GRAD, Capability.RETAIN_GRAD)
def retained_gradients(tried: Tried) -> None:
    """Whether a tensor retains its gradient is a bool."""
    made = tried.compute(tried.tensor([1.0], requires_grad=True), "*", 2.0)
    tried.expect(False, "retains_grad", made)
    tried.retain_grad(made)
    tried.expect(True, "retains_grad", made)


@probe(Capability.POST_ACCUMULATE)
def post_accumulate(tried: Tried) -> None:
    """A post-accumulate hook has a handle."""
    handle(tried, "register_post_accumulate_grad_hook", tried.tensor([1.0], requires_grad=True), _quiet).remove()


@probe(Capability.NODES)
def nodes(tried: Tried) -> None:
    """A result has a Node with a name and inputs, a leaf has none but its AccumulateGrad."""
    leaf = tried.tensor([1.0], requires_grad=True)
    node = tried.grad_fn(tried.compute(leaf, "*", 2.0))
    if node is None:
        tried.refuse(
            "grad_fn", "grad_fn(tensor([1.0], requires_grad=True) * 2.0)", "a Node", "None", promise("grad_fn")
        )
    name, before = tried.node_name(node), tried.node_next(node)
    if not isinstance(name, str):
        tried.fault("node_name", "node_name(node)", "a text", type(name).__name__, "return the Node's name as a text")
    if not isinstance(before, list | tuple):
        tried.fault("node_next", "node_next(node)", "a list", type(before).__name__, promise("node_next"))
    if tried.accumulate_grad(leaf) is None:
        tried.fault("accumulate_grad", "accumulate_grad(leaf)", "a Node", "None", promise("accumulate_grad"))


@probe(Capability.NODES, Capability.NODE_METADATA)
def node_metadata(tried: Tried) -> None:
    """A Node keeps what is written into its dict."""
    made = tried.compute(tried.tensor([1.0], requires_grad=True), "*", 2.0)
    node = tried.grad_fn(made)
    tried.node_metadata(node)["key"] = "value"
    if tried.node_metadata(node).get("key") != "value":
        mend = "return the Node's own dict each time"
        tried.fault("node_metadata", "node_metadata(node)['key'] = 'value'", "kept", "forgotten", mend)


@probe(Capability.NODES, Capability.NODE_HOOKS)
def node_hooks(tried: Tried) -> None:
    """Hooks on Nodes have handles."""
    made = tried.compute(tried.tensor([1.0], requires_grad=True), "*", 2.0)
    node = tried.grad_fn(made)
    for verb in ("node_register_prehook", "node_register_hook"):
        handle(tried, verb, node, _quiet).remove()


@probe(Capability.MULTI_GRAD)
def multi_grad(tried: Tried) -> None:
    """A hook on several tensors has a handle."""
    leaves = [tried.tensor([1.0], requires_grad=True) for _ in range(2)]
    for mode in ("all", "any"):
        handle(tried, "register_multi_grad_hook", leaves, _quiet, mode=mode).remove()


@probe(Capability.SAVED_TENSOR_HOOKS)
def saved_tensor_hooks(tried: Tried) -> None:
    """`pack` is given tensors, and `unpack` what `pack` returned."""
    x = tried.tensor([1.0, 2.0], requires_grad=True)
    packed, unpacked = [], []
    with context(
        tried,
        "saved_tensors_hooks",
        lambda tensor: (packed.append(tensor), ("packed", tensor))[1],
        lambda kept: (unpacked.append(kept), kept[1])[1],
    ):
        loss = tried.sum(tried.exp(x))
    tried.backward(loss)
    for tensor in packed:
        tried.expect_tensor(tried.named(tensor, "what pack is given"), "saved_tensors_hooks")
    if any(type(kept) is not tuple for kept in unpacked):
        kinds = sorted({type(kept).__name__ for kept in unpacked})
        given, mend = "unpack's argument", "give unpack the very object that pack returned"
        tried.fault("saved_tensors_hooks", given, "what pack returned, a tuple", ", ".join(kinds), mend)


@probe(Capability.CUSTOM_FUNCTION)
def custom_function(tried: Tried) -> None:
    """A custom Function computes its forward, and its backward the gradient."""
    x = tried.tensor([1.0, 2.0], requires_grad=True)
    apply = tried.call("custom_function", lambda _, tensor: tensor * 2.0, lambda _, grad: grad * 7.0)
    if not callable(apply):
        given = "custom_function(forward, backward)"
        tried.refuse("custom_function", given, "a function of tensors", type(apply).__name__, "return its apply")
    made = tried.named(apply(x), "custom_function(forward, backward)(x)")
    tried.expect([2.0, 4.0], "tolist", made)
    tried.backward(tried.sum(made))
    tried.expect(
        [7.0, 7.0], "tolist", tried.grad_of(x), mend="let the framework call `backward` of the custom Function"
    )
