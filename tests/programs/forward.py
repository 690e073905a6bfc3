"""Programs with hooks before and after the forward of a module."""
# ruff: noqa: D103 - the name of a program says what it does

from programs.log import UserError, program


@program
def pre_hook_is_given_a_tuple(b, log):
    module = log.double()
    b.register_forward_pre_hook(module, log.hook("pre"))
    log.saw("out", module(log.leaf()), module(log.plain_tensor()))


@program
def pre_hooks_replace_one_after_the_other(b, log):
    module = log.double()
    b.register_forward_pre_hook(module, log.hook("bare", lambda args: args[0] + 1))
    b.register_forward_pre_hook(module, log.hook("tuple", lambda args: (args[0] * 10,)))
    b.register_forward_hook(module, log.hook("after"))
    log.saw("out", module(log.leaf()))


@program
def pre_hook_changes_the_number_of_inputs(b, log):
    module = b.module({}, lambda _module, *inputs: log.saw("inputs", inputs))
    b.register_forward_pre_hook(module, lambda _module, args: (*args, 3))
    b.register_forward_pre_hook(module, lambda _module, args: [*args])
    module(1, 2)


@program
def pre_hooks_see_kwargs_on_demand(b, log):
    module = b.module({}, lambda _module, x, factor, plus=0: x * factor + plus)
    b.register_forward_pre_hook(module, log.hook("without"))
    b.register_forward_pre_hook(
        module, log.hook("with", lambda args, kwargs: (args, kwargs | {"plus": 1})), with_kwargs=True
    )
    b.register_forward_pre_hook(module, log.hook("again"), with_kwargs=True)
    log.saw("out", module(log.leaf(), factor=log.plain_tensor()))


@program
def pre_hook_with_kwargs_returns_something_else(b, log):
    for wrong in (lambda *_: 1, lambda *_: (), lambda args, kwargs: (args, kwargs, 3), lambda *given: list(given)):
        module = log.double()
        b.register_forward_pre_hook(module, log.hook("pre", wrong), with_kwargs=True)
        with log.refused():
            module(log.leaf())


@program
def pre_hooks_prepended(b, log):
    module = log.double()
    for name in "abcd":
        b.register_forward_pre_hook(module, log.hook(name), prepend=name in "bd")
    b.register_module_forward_pre_hook(log.hook("global"))
    module(log.leaf())


@program
def pre_hook_raises(b, log):
    def fail(*_):
        raise UserError("pre")

    module = log.double()
    b.register_forward_pre_hook(module, fail)
    b.register_forward_pre_hook(module, log.hook("later"))
    b.register_forward_hook(module, log.hook("always"), always_call=True)
    with log.refused():
        module(log.leaf())


@program
def forward_itself_calls_no_hooks(b, log):
    module = b.module({}, lambda _module, x: x * 2)
    b.register_forward_pre_hook(module, log.hook("pre"))
    b.register_forward_hook(module, log.hook("after"))
    b.register_full_backward_hook(module, log.hook("full"))
    forward = type(module).forward if hasattr(type(module), "forward") else module.forward
    x = log.leaf()
    log.back(forward(module, x))
    log.grad_of(x)


@program
def forward_hooks_replace_one_after_the_other(b, log):
    module = log.double()
    b.register_forward_hook(module, log.hook("first", lambda _args, output: output + 1))
    b.register_forward_hook(module, log.hook("second"))
    b.register_forward_hook(module, log.hook("third", lambda _args, output: {"made": output}))
    log.saw("out", module(log.leaf()))


@program
def forward_hooks_see_kwargs_on_demand(b, log):
    module = b.module({}, lambda _module, x, factor=1: x * factor)
    b.register_forward_hook(module, log.hook("without"))
    b.register_forward_hook(
        module, log.hook("with", lambda _args, kwargs, output: output + kwargs["factor"]), with_kwargs=True
    )
    b.register_module_forward_hook(log.hook("global"), with_kwargs=True)
    log.saw("out", module(log.leaf(), factor=3))


@program
def forward_hooks_prepended(b, log):
    module = log.double()
    for name in "abcd":
        b.register_forward_hook(module, log.hook(name), prepend=name in "bd")
    b.register_module_forward_hook(log.hook("global"))
    module(log.leaf())


@program
def forward_hooks_without_recording(b, log):
    module = log.double()
    b.register_forward_pre_hook(module, log.hook("pre"))
    b.register_forward_hook(module, log.hook("after"))
    b.register_full_backward_hook(module, log.hook("full"))
    x = log.leaf()
    with b.no_grad():
        y = module(x)
    log.saw("out", y, b.requires_grad(y))


@program
def always_called_hook_of_a_failing_forward(b, log):
    def fail(_module, _x, **_kwargs):
        raise UserError("forward")

    module = b.module({}, fail)
    b.register_forward_hook(module, log.hook("never"))
    b.register_forward_hook(module, log.hook("always", lambda *_: "replaced"), always_call=True)
    b.register_forward_hook(module, log.hook("with kwargs"), always_call=True, with_kwargs=True)
    b.register_module_forward_hook(log.hook("global"), always_call=True)
    with log.refused():
        module(log.plain_tensor(), factor=2)


@program
def always_called_hook_after_a_failing_hook(b, log):
    def fail(*_):
        raise UserError("hook")

    module = log.double()
    b.register_forward_hook(module, log.hook("before", lambda _args, output: output * 3), always_call=True)
    b.register_forward_hook(module, fail)
    b.register_forward_hook(module, log.hook("never"))
    b.register_forward_hook(module, log.hook("after"), always_call=True)
    with log.refused():
        module(log.leaf())


@program
def always_called_hook_fails_itself(b, log):
    def fail(*_):
        log.saw("fails")
        raise UserError("hook")

    module = log.double()
    b.register_forward_hook(module, fail, always_call=True)
    b.register_forward_hook(module, fail, always_call=True)
    b.register_forward_hook(module, log.hook("after"), always_call=True)
    with log.refused():
        module(log.leaf())
    module = b.module({}, lambda _module, *missing: missing[0])
    b.register_forward_hook(module, fail, always_call=True)
    with log.refused():
        module()


@program
def always_called_global_hook_with_kwargs(b, log):
    def fail(_module, _x, **_kwargs):
        raise UserError("forward")

    b.register_module_forward_hook(log.hook("global"), always_call=True, with_kwargs=True)
    with log.refused():
        b.module({}, fail)(1, factor=2)


@program
def always_called_hook_without_failure(b, log):
    module = log.double()
    b.register_forward_hook(module, log.hook("always", lambda _args, output: output + 1), always_call=True)
    log.saw("out", module(log.leaf()))


@program
def handles_removed_meanwhile(b, log):
    module, handles = log.double(), []
    handles.append(b.register_forward_pre_hook(module, log.hook("pre", lambda _args: handles[1].remove())))
    handles.append(b.register_forward_pre_hook(module, log.hook("pre 2", lambda _args: handles[2].remove())))
    handles.append(b.register_forward_hook(module, log.hook("after", lambda *_: handles[2].remove())))
    module(log.leaf())
    module(log.leaf())


@program
def hooks_registered_meanwhile(b, log):
    def register(*_):
        b.register_forward_pre_hook(module, log.hook("new pre"))
        b.register_forward_hook(module, log.hook("new after"))
        b.register_full_backward_hook(module, log.hook("new full"))

    module = log.double()
    handle = b.register_forward_pre_hook(module, register)
    log.back(module(log.leaf()))
    handle.remove()
    log.back(module(log.leaf()))


@program
def handles_as_contexts_and_twice(b, log):
    module = log.double()
    with b.register_forward_hook(module, log.hook("inside"), always_call=True, with_kwargs=True):
        module(log.leaf())
    handle = b.register_forward_pre_hook(module, log.hook("pre"), with_kwargs=True)
    handle.remove()
    handle.remove()
    module(log.leaf())
