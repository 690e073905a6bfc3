"""Programs with one hook on several tensors."""
# ruff: noqa: D103 - the name of a program says what it does

import threading

from programs.log import UserError, program


@program
def all_waits_for_each(b, log):
    x, y = log.leaf(), log.leaf(3, 4)
    product = x * y
    b.register_multi_grad_hook([y, product, x], log.grads("all"))
    b.register_hook(product, log.grads("product"))
    log.back(product * 2)
    log.grad_of(x, y)


@program
def any_takes_the_first(b, log):
    x, y = log.leaf(), log.leaf(3, 4)
    product = x * y
    b.register_multi_grad_hook([y, product, x], log.grads("any"), mode="any")
    total = b.sum(product * 2)
    b.backward(total, retain_graph=True)
    b.backward(total)


@program
def multi_grad_and_a_part_of_the_graph(b, log):
    x, y = log.leaf(), log.leaf(3, 4)
    first, second = x * y, x * y
    b.register_multi_grad_hook([x, y, first, second], log.grads("all"))
    b.register_multi_grad_hook([second, y], log.grads("any"), mode="any")
    total = b.sum(first)
    b.backward(total, retain_graph=True)
    b.backward(total, inputs=[x], retain_graph=True)
    b.backward(b.sum(second), inputs=[y], retain_graph=True)
    b.backward(b.sum(x))


@program
def multi_grad_and_the_gradients_asked_for(b, log):
    x = log.leaf()
    y, z = x * 2, x * 3
    b.register_multi_grad_hook([z, y], log.grads("all"))
    b.register_multi_grad_hook([x, y], log.grads("any"), mode="any")
    total = b.sum(y * z)
    for inputs in ([x], [y], [z, y]):
        log.saw("asked", b.grad(total, inputs, retain_graph=True))
    log.saw("asked", b.grad(b.sum(y * 1), [y, z], allow_unused=True))


@program
def multi_grad_on_a_leaf_that_is_asked_for(b, log):
    x = log.leaf()
    y = x * 2
    b.register_multi_grad_hook([x, y], log.grads("all"))
    with log.refused():
        log.saw("asked", b.grad(b.sum(y), [x]))


@program
def multi_grad_on_a_leaf_that_is_not_asked_for(b, log):
    x = log.leaf()
    y = x * 2
    b.register_multi_grad_hook([x, y], log.grads("all"))
    log.saw("asked", b.grad(b.sum(y * 3), [y]))


@program
def none_takes_part(b, log):
    x, y = log.leaf(), log.leaf()
    b.register_multi_grad_hook([y], log.grads("all"))
    b.register_multi_grad_hook([y], log.grads("any"), mode="any")
    b.register_multi_grad_hook([], log.grads("all of none"))
    b.register_multi_grad_hook([], log.grads("any of none"), mode="any")
    log.back(x)
    log.grad_of(x, y)


@program
def multi_grad_on_what_requires_no_grad(b, log):
    for mode in ("all", "any"):
        x, constant = log.leaf(), log.plain_tensor()
        with log.refused():
            b.register_multi_grad_hook([constant, x], log.grads(mode), mode=mode)
        log.back(x * constant)


@program
def multi_grad_in_a_mode_that_does_not_exist(b, log):
    with log.refused():
        b.register_multi_grad_hook([log.leaf()], log.grads("some"), mode="some")


@program
def all_with_an_unused_part(b, log):
    first, second = b.split(log.leaf(), 1)
    b.register_multi_grad_hook([first, second], log.grads("all"))
    log.back(second)


@program
def any_with_an_unused_part(b, log):
    first, second = b.split(log.leaf(), 1)
    b.register_multi_grad_hook([first, second], log.grads("any"), mode="any")
    log.back(second)


@program
def multi_grad_on_the_root(b, log):
    x = log.leaf()
    root = b.sum(x * 2)
    b.register_multi_grad_hook([root], log.grads("root"))
    b.register_multi_grad_hook([x, root], log.grads("all"))
    b.register_multi_grad_hook([x, root], log.grads("any"), mode="any")
    b.backward(root)


@program
def multi_grad_on_several_roots(b, log):
    x = log.leaf()
    first, second = b.sum(x * 2), b.sum(x * 3)
    b.register_multi_grad_hook([first, second], log.grads("all"))
    log.saw("asked", b.grad((first, second), [x], (b.tensor(1.0), b.tensor(2.0))))


@program
def multi_grad_on_one_tensor_twice(b, log):
    x = log.leaf()
    b.register_multi_grad_hook([x, x], log.grads("all"))
    b.register_multi_grad_hook([x, x], log.grads("any"), mode="any")
    log.back(x * 2)


@program
def multi_grad_among_tensor_hooks(b, log):
    x = log.leaf()
    y = x * 3
    b.register_hook(y, lambda grad: grad * 2)
    b.register_multi_grad_hook([y], lambda grads: (log.saw("all", grads), grads[0] * 100)[1])
    b.register_multi_grad_hook([y], lambda grad: (log.saw("any", grad), grad * 100)[1], mode="any")
    b.register_hook(y, lambda grad: grad * 5)
    b.node_register_prehook(b.grad_fn(y), lambda grads: log.saw("node", grads))
    b.register_multi_grad_hook([x], lambda _: log.grad_of(x))
    log.back(y)
    log.grad_of(x)


@program
def multi_grad_handles(b, log):
    x = log.leaf()
    y = x * 3
    for mode in ("all", "any"):
        handle = b.register_multi_grad_hook([x, y], log.grads(mode), mode=mode)
        handle.remove()
        handle.remove()
        with b.register_multi_grad_hook([x, y], log.grads(f"{mode} inside"), mode=mode):
            b.backward(b.sum(y), retain_graph=True)
    b.backward(b.sum(y), retain_graph=True)


@program
def multi_grad_handle_removed_meanwhile(b, log):
    x = log.leaf()
    y = x * 3
    handle = b.register_multi_grad_hook([x, y], log.grads("all"))
    b.register_hook(y, lambda _: handle.remove())
    log.back(y)
    log.grad_of(x)


@program
def multi_grad_hook_raises(b, log):
    x = log.leaf()
    y = x * 2
    total = b.sum(y)

    def fail(given):
        log.saw("fails", given)
        raise UserError("multi-grad")

    for mode in ("all", "any"):
        handle = b.register_multi_grad_hook([x, y], fail, mode=mode)
        for _ in range(2):
            with log.refused():
                b.backward(total, retain_graph=True)
        handle.remove()


@program
def a_hook_between_raises(b, log):
    x, y = log.leaf(), log.leaf()
    b.register_multi_grad_hook([x, y], log.grads("all"))
    once = []

    def fail(_):
        if not once:
            once.append(1)
            raise UserError("between")

    b.register_hook(x * 1, fail)
    middle = x * 2
    b.register_hook(middle, fail)
    total = b.sum(middle + y)
    for _ in range(2):
        with log.refused():
            b.backward(total, retain_graph=True)


@program
def multi_grad_in_a_backward_inside_of_a_backward(b, log):
    x, y = log.leaf(), log.leaf(3, 4)
    first, second = x * 2, y * 3
    small = b.sum(first)
    total = b.sum(first * 1 + second * 1)
    once = []

    def nest(_):
        if not once:
            once.append(1)
            b.backward(small, retain_graph=True)

    b.register_multi_grad_hook([first, second], log.grads("all"))
    b.register_multi_grad_hook([first, second], log.grads("any"), mode="any")
    b.register_hook(second, nest)
    b.backward(total, retain_graph=True)


@program
def multi_grad_on_leaves_over_several_graphs(b, log):
    x, y = log.leaf(), log.leaf()
    b.register_multi_grad_hook([x, y], log.grads("all"))
    for nr in range(3):
        log.back(x * nr + y)


@program
def multi_grad_and_create_graph(b, log):
    x = log.leaf()
    y = x * x
    b.register_multi_grad_hook([y], lambda grads: log.saw("all", grads, b.requires_grad(grads[0])))
    (first,) = b.grad(b.sum(y * y), [x], create_graph=True)
    log.back(first)
    log.grad_of(x)


@program
def multi_grad_in_threads(b, log):
    x, y = log.leaf(), log.leaf()
    seen = []
    b.register_multi_grad_hook([x, y], seen.append)
    b.register_multi_grad_hook([x, y], seen.append, mode="any")
    totals = [b.sum(x * nr + y * nr) for nr in range(1, 5)]
    threads = [threading.Thread(target=b.backward, args=(one,)) for one in totals]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    log.saw(sorted(str(log.plain(one)) for one in seen))
