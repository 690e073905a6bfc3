"""Programs with backward hooks: modules in modules, kept graphs, inner backwards, changes in place."""
# ruff: noqa: D103 - the name of a program says what it does

import threading
import warnings
from collections import namedtuple

from programs.log import UserError, program

Pair = namedtuple("Pair", "first second")  # noqa: PYI024 - its type is all that matters


@program
def other_kinds_of_output(b, log):
    for made in (lambda x: [x], lambda x: {"x": x}, lambda _: None, lambda _: (), lambda x: Pair(x, 3)):
        module = b.module({}, lambda _module, x, made=made: made(x * 2))
        b.register_full_backward_hook(module, log.hook("full"))
        y = module(log.leaf())
        log.saw("out", y)
        if y:
            log.back(next(iter(y.values())) if isinstance(y, dict) else y[0])


@program
def warnings_of_modules(b, log):
    module = b.module({"weight": b.tensor([5.0])}, lambda module, x: [x * module.weight])
    b.register_full_backward_hook(module, log.hook("full"))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        module(log.plain_tensor(1))
        log.saw([one.category.__name__ for one in seen])
        module = log.scale()
        b.register_full_backward_hook(module, log.hook("full"))
        log.back(module(log.plain_tensor()))
        log.saw([one.category.__name__ for one in seen])


@program
def backward_hooks_return_what_they_may_not(b, log):
    wrong = [lambda _: 5, lambda _: (), lambda grads: (*grads, None), lambda grads: (b.sum(grads[0]),), lambda _: (7,)]
    for result in wrong:
        for register in (b.register_full_backward_hook, b.register_full_backward_pre_hook):
            module = log.scale()
            register(module, lambda _module, grads, *_, result=result: result(grads))
            with log.refused():
                log.back(module(log.leaf()))


@program
def full_backward_hook_returns_a_tensor(b, log):
    module = log.scale()
    b.register_full_backward_hook(module, lambda _module, grads, _: grads[0])
    with log.refused():
        log.back(module(log.leaf()))


@program
def pre_hook_of_backward_returns_a_tensor(b, log):
    module, x = log.scale(), log.leaf()
    b.register_full_backward_pre_hook(module, lambda _module, grads: grads[0] * 2)
    with log.refused():
        log.back(module(x))
    log.grad_of(x)


@program
def backward_hooks_raise(b, log):
    def fail(*_):
        raise UserError("hook")

    for register in (b.register_full_backward_hook, b.register_full_backward_pre_hook):
        module, x = log.scale(), log.leaf()
        handle = register(module, fail)
        b.register_full_backward_hook(module, log.hook("later"))
        with log.refused():
            log.back(module(x))
        handle.remove()
        log.back(module(x))
        log.grad_of(x)


@program
def the_graph_is_kept(b, log):
    module, x = log.scale(), log.leaf()
    b.register_full_backward_hook(module, log.hook("full"))
    b.register_full_backward_pre_hook(module, log.hook("pre"))
    y = b.sum(module(x))
    for _ in range(2):
        b.backward(y, retain_graph=True)
    log.grad_of(x)


@program
def a_module_is_used_twice(b, log):
    module, x = log.scale(), log.leaf()
    b.register_full_backward_hook(module, log.hook("full"))
    log.back(module(module(x)))
    log.grad_of(x, module.weight)


@program
def gradients_are_asked_for(b, log):
    module, x = log.scale(), log.leaf()
    b.register_full_backward_hook(module, log.hook("full", lambda grads, _: (grads[0] * 10,)))
    b.register_full_backward_pre_hook(module, log.hook("pre"))
    y = module(x)
    total = b.sum(y * y)
    for inputs in ([x], [module.weight], [y], [x, y]):
        log.saw("asked", b.grad(total, inputs, retain_graph=True))


@program
def backward_is_limited_to_inputs(b, log):
    module, x = log.scale(), log.leaf()
    b.register_full_backward_hook(module, log.hook("full"))
    y = b.sum(module(x))
    b.backward(y, inputs=[module.weight], retain_graph=True)
    b.backward(y, inputs=[x])
    log.grad_of(x, module.weight)


@program
def one_of_two_inputs_is_asked_for(b, log):
    module = b.module({}, lambda _module, x, y: (x * y, y * 3))
    b.register_full_backward_hook(module, log.hook("full"))
    x, y = log.leaf(), log.leaf(3, 4)
    first, second = module(x, y)
    log.saw("asked", b.grad(b.sum(first + second), [x]))


@program
def a_gradient_is_differentiated(b, log):
    module = b.module({}, lambda _module, x: x * x * x)
    b.register_full_backward_hook(module, log.hook("full"))
    b.register_full_backward_pre_hook(module, log.hook("pre"))
    x = log.leaf()
    (first,) = b.grad(b.sum(module(x)), [x], create_graph=True)
    log.back(first * first)
    log.grad_of(x)


@program
def registered_or_removed_after_forward(b, log):
    module, x = log.scale(), log.leaf()
    y = module(x)
    handle = b.register_full_backward_hook(module, log.hook("full"))
    log.back(y)
    y = module(x)
    handle.remove()
    b.register_full_backward_hook(module, log.hook("late"))
    log.back(y)


@program
def inputs_and_outputs_are_views(b, log):
    def forward(_module, x):
        log.saw("in", x is given, b.data_ptr(x) == b.data_ptr(given))
        made.append(x * 2)
        return made[-1], x

    module, given, made = b.module({}, forward), log.leaf(), []
    log.saw("out", module(given)[0] is made[-1])
    b.register_full_backward_pre_hook(module, log.hook("pre"))
    y, x = module(given)
    log.saw("out", y is made[-1], b.data_ptr(y) == b.data_ptr(made[-1]), x is given)
    with b.no_grad():
        y, x = module(given)
    log.saw("out", y is made[-1], x is given)


@program
def changed_in_place(b, log):
    def module(forward):
        made = b.module({"weight": b.tensor([5.0, 7.0])}, forward)
        b.register_full_backward_hook(made, log.hook("full"))
        return made

    with log.refused():
        module(lambda _module, x: b.mul_(x, 2))(log.leaf() * 1)
    with log.refused():
        b.mul_(module(lambda _module, x: x * 2)(log.leaf()), 2)
    with log.refused():
        b.mul_(b.view(module(lambda _module, x: x * 2)(log.leaf()), 2, 1), 2)
    with log.refused():
        log.back(module(lambda module, x: b.mul_(x, 2) * module.weight)(log.plain_tensor()))
    with log.refused():
        log.back(module(lambda _module, x, constant: x * b.mul_(constant, 2))(log.leaf(), log.plain_tensor()))
    with log.refused():
        y = module(lambda _module, x: x * 2)(log.leaf())
        with b.no_grad():
            b.mul_(y, 2)
        log.back(y)
    made = module(lambda _module, x: x * 2)
    b.register_forward_hook(made, lambda _module, _args, output: b.mul_(output, 10))
    with log.refused():
        log.back(made(log.leaf()))


@program
def a_backward_inside_of_a_backward(b, log):
    x, inside = log.leaf(), []
    module = b.module({}, lambda _module, x: (inside.append(x * 2), inside[-1])[1])
    b.register_full_backward_hook(module, log.hook("full"))
    y = module(x)
    small = b.sum(y)
    once = []

    def nest(_):
        if not once:
            once.append(1)
            b.backward(small, retain_graph=True)
            log.saw("inner is done")

    b.register_hook(inside[0], nest)
    b.backward(b.sum(y * 3), retain_graph=True)
    log.grad_of(x)


@program
def gradients_that_come_past_the_outputs(b, log):
    x, inside = log.leaf(), []
    module = b.module({}, lambda _module, x: (inside.append(x * 3), x * 2)[1])
    b.register_full_backward_hook(module, log.hook("full"))
    module(x)
    log.back(inside[0])
    log.grad_of(x)


@program
def gradients_of_the_weights_and_then_past_the_outputs(b, log):
    x, inside = log.leaf(), []
    module = b.module({"weight": b.tensor([5.0])}, lambda module, x: (inside.append(x * 3), x * module.weight)[1])
    b.register_full_backward_hook(module, log.hook("full"))
    y = b.sum(module(x))
    log.saw("asked", b.grad(y, [module.weight], retain_graph=True))
    log.back(inside[0])
    log.grad_of(x)


@program
def nested_modules(b, log):
    inner = log.double(name="inner")
    outer = b.module({}, lambda _module, x: (log.saw("outer", x), inner(x) + 1)[1])
    for name, module in (("inner", inner), ("outer", outer)):
        b.register_forward_pre_hook(module, log.hook(f"{name} pre"))
        b.register_forward_hook(module, log.hook(f"{name} after"))
        b.register_full_backward_pre_hook(module, log.hook(f"{name} backward pre"))
        b.register_full_backward_hook(module, log.hook(f"{name} backward"))
    log.back(outer(log.leaf()))


@program
def global_hooks_of_nested_modules(b, log):
    handles = [
        b.register_module_forward_pre_hook(log.hook("pre", lambda args: args[0] + 1)),
        b.register_module_forward_hook(log.hook("after", lambda _args, output: output * 2)),
        b.register_module_full_backward_pre_hook(log.hook("backward pre", lambda grads: (grads[0] * 3,))),
        b.register_module_full_backward_hook(log.hook("backward", lambda grads, _: (grads[0] + 1,))),
    ]
    inner = log.double(name="inner")
    outer = b.module({}, lambda _module, x: inner(x) + 1)
    x = log.leaf()
    log.back(outer(x))
    log.grad_of(x)
    for handle in handles:
        handle.remove()
    log.back(outer(x))


@program
def global_hooks_before_local_ones(b, log):
    module = log.double()
    b.register_forward_pre_hook(module, log.hook("pre"), prepend=True)
    b.register_forward_hook(module, log.hook("after"), prepend=True)
    b.register_full_backward_pre_hook(module, log.hook("backward pre"), prepend=True)
    b.register_full_backward_hook(module, log.hook("backward"), prepend=True)
    b.register_module_forward_pre_hook(log.hook("global pre", lambda args: args[0] + 1))
    b.register_module_forward_hook(log.hook("global after", lambda _args, output: output + 1))
    b.register_module_full_backward_pre_hook(log.hook("global backward pre", lambda grads: (grads[0] * 2,)))
    b.register_module_full_backward_hook(log.hook("global backward", lambda grads, _: (grads[0] * 2,)))
    log.back(module(log.leaf()))


@program
def modules_in_threads(b, log):
    module, x = log.scale(), log.leaf()
    seen = []
    b.register_full_backward_hook(module, lambda _module, *grads: seen.append(grads))
    outputs = [b.sum(module(x) * nr) for nr in range(1, 5)]
    threads = [threading.Thread(target=b.backward, args=(one,)) for one in outputs]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    log.saw(sorted(str(log.plain(one)) for one in seen))
