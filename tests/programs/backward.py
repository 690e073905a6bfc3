"""Programs with hooks on the backward of a module: what they are given and may return."""
# ruff: noqa: D103 - the name of a program says what it does

from programs.log import program


@program
def full_backward_hook_is_given_both_ends(b, log):
    module, x = log.scale(), log.leaf()
    b.register_full_backward_hook(module, log.hook("full"))
    log.back(module(x) * 3)
    log.grad_of(x, module.weight)


@program
def full_backward_hooks_replace_one_after_the_other(b, log):
    module, x = log.scale(), log.leaf()
    b.register_full_backward_hook(module, log.hook("first", lambda grads, _: (grads[0] * 2,)))
    b.register_full_backward_hook(module, log.hook("second"))
    b.register_full_backward_hook(module, log.hook("list", lambda grads, _: [grads[0] + 1]))
    log.back(module(x))
    log.grad_of(x, module.weight)


@program
def pre_hooks_of_backward_replace(b, log):
    module, x = log.scale(), log.leaf()
    b.register_full_backward_pre_hook(module, log.hook("first", lambda grads: (grads[0] * 2,)))
    b.register_full_backward_pre_hook(module, log.hook("second", lambda grads: (grads[0] + 1,)))
    b.register_full_backward_hook(module, log.hook("full"))
    log.back(module(x))
    log.grad_of(x, module.weight)


@program
def backward_hooks_prepended(b, log):
    module = log.scale()
    for name in "abcd":
        b.register_full_backward_hook(module, log.hook(name), prepend=name in "bd")
        b.register_full_backward_pre_hook(module, log.hook("pre " + name), prepend=name in "bd")
    b.register_module_full_backward_hook(log.hook("global"))
    b.register_module_full_backward_pre_hook(log.hook("global pre"))
    log.back(module(log.leaf()))


@program
def the_order_around_a_module(b, log):
    x = log.leaf()
    module = b.module({"weight": b.tensor([5.0])}, lambda module, x: inner(x * module.weight))

    def inner(y):
        b.register_hook(y, log.grads("inside"))
        return y

    b.register_full_backward_hook(module, log.hook("full"))
    b.register_full_backward_pre_hook(module, log.hook("pre"))
    b.register_hook(module.weight, log.grads("weight"))
    before = x * 1
    b.register_hook(before, log.grads("before"))
    y = module(before)
    b.register_hook(y, log.grads("after"))
    b.node_register_prehook(b.grad_fn(y), lambda _: log.saw("node pre"))
    b.node_register_hook(b.grad_fn(y), lambda *_: log.saw("node post"))
    log.back(y)


@program
def no_input_requires_grad(b, log):
    module = log.scale()
    b.register_full_backward_hook(module, log.hook("full"))
    b.register_full_backward_hook(module, log.hook("nones", lambda *_: (None,)))
    b.register_full_backward_hook(module, lambda module, *_: log.saw("weight", b.grad_of(module.weight)))
    b.register_full_backward_pre_hook(module, log.hook("pre", lambda grads: (grads[0] * 2,)))
    log.back(module(log.plain_tensor()))
    log.grad_of(module.weight)


@program
def no_input_at_all(b, log):
    module = b.module({"weight": b.tensor([5.0])}, lambda module, **kwargs: module.weight * kwargs.get("factor", 2))
    b.register_full_backward_hook(module, log.hook("full"))
    log.back(module())
    x = log.leaf(3)
    log.back(module(factor=x))
    log.grad_of(x, module.weight)


@program
def no_input_requires_grad_and_a_hook_replaces(b, log):
    for wrong in ((1.0,), (None, 2), [None]):
        module = log.scale()
        b.register_full_backward_hook(module, lambda *_, wrong=wrong: wrong)
        with log.refused():
            log.back(module(log.plain_tensor()))


@program
def no_output_requires_grad(b, log):
    module = b.module({}, lambda _module, x: b.detach(x))
    b.register_full_backward_hook(module, log.hook("full"))
    b.register_full_backward_pre_hook(module, log.hook("pre"))
    x = log.leaf()
    y = module(x)
    log.back(y * x)
    log.saw(b.requires_grad(y), y)


@program
def several_inputs_and_outputs(b, log):
    module = b.module({}, lambda _module, _name, x, y, _n: (x * y, None, x * 2, "text"))
    b.register_full_backward_hook(module, log.hook("full"))
    b.register_full_backward_pre_hook(module, log.hook("pre"))
    x, y = log.leaf(), log.leaf(3, 4)
    first, _, second, _ = module("name", x, y, 3)
    log.back(first, second)
    log.grad_of(x, y)


@program
def replaced_among_several(b, log):
    module = b.module({}, lambda _module, x, n, y: (x * n, y * n))
    b.register_full_backward_pre_hook(module, log.hook("pre", lambda grads: (grads[0] * 3, None)))
    b.register_full_backward_hook(module, log.hook("full", lambda grads, _: (None, "ignored", grads[2])))
    x, y = log.leaf(), log.leaf(3, 4)
    log.back(*module(x, 2, y))
    log.grad_of(x, y)


@program
def an_output_is_not_used(b, log):
    module = b.module({}, lambda _module, x: (x * 2, x * 3))
    b.register_full_backward_hook(module, log.hook("full"))
    x = log.leaf()
    log.back(module(x)[0])
    log.grad_of(x)


@program
def a_pre_hook_gives_an_unused_output_a_gradient(b, log):
    module = b.module({}, lambda _module, x: (x * 2, x * 3))
    b.register_full_backward_pre_hook(module, log.hook("pre", lambda grads: (grads[0], grads[0] * 10)))
    b.register_full_backward_hook(module, log.hook("full"))
    x = log.leaf()
    log.back(module(x)[0])
    log.grad_of(x)


@program
def an_input_is_not_used_or_needs_no_gradient(b, log):
    module = b.module({}, lambda _module, x, _unused, constant: (x * constant, constant))
    b.register_full_backward_hook(module, log.hook("full"))
    x, unused = log.leaf(), log.leaf()
    y, constant = module(x, unused, log.plain_tensor())
    log.back(y * constant)
    log.saw(b.requires_grad(constant))
    log.grad_of(x, unused)


@program
def an_output_does_not_depend_on_the_input(b, log):
    module = b.module({"weight": b.tensor([5.0])}, lambda module, _x: module.weight * 2)
    b.register_full_backward_hook(module, log.hook("full"))
    b.register_full_backward_pre_hook(module, log.hook("pre"))
    x = log.leaf(1)
    log.back(module(x))
    log.grad_of(x, module.weight)


@program
def an_input_is_returned_as_it_is(b, log):
    module = b.module({}, lambda _module, x: x)
    b.register_full_backward_hook(module, log.hook("full", lambda grads, _: (grads[0] * 2,)))
    x = log.leaf()
    y = module(x)
    log.back(y)
    log.saw(y is x, b.is_leaf(y))
    log.grad_of(x)


@program
def one_tensor_is_given_twice(b, log):
    module = b.module({}, lambda _module, x, y: x * 2 + y * 3)
    b.register_full_backward_hook(module, log.hook("full"))
    x = log.leaf()
    log.back(module(x, x))
    log.grad_of(x)
