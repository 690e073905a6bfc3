"""The verbs that register hooks, in groups."""

NODE = ("node_register_prehook", "node_register_hook")
IN_BACKWARD = ("register_hook", "register_post_accumulate_grad_hook", *NODE)
"""On tensors and Nodes; the groups below are on a module, or on all modules."""
FORWARD_PRE = ("register_forward_pre_hook", "register_module_forward_pre_hook")
FORWARD = ("register_forward_hook", "register_module_forward_hook")
FULL_BACKWARD_PRE = ("register_full_backward_pre_hook", "register_module_full_backward_pre_hook")
FULL_BACKWARD = ("register_full_backward_hook", "register_module_full_backward_hook")
MODULE_BACKWARD = (*FULL_BACKWARD_PRE, *FULL_BACKWARD)
GLOBAL_BACKWARD = (FULL_BACKWARD_PRE[1], FULL_BACKWARD[1])
MODULE = (*FORWARD_PRE, *FORWARD, *MODULE_BACKWARD)
ON_ALL_MODULES = tuple(verb for verb in MODULE if verb.startswith("register_module_"))
ON_ONE_MODULE = tuple(verb for verb in MODULE if verb not in ON_ALL_MODULES)
REGISTRATION = (
    "register_module_parameter_registration_hook",
    "register_module_buffer_registration_hook",
    "register_module_module_registration_hook",
)
STATE_PRE = ("register_state_dict_pre_hook", "register_load_state_dict_pre_hook")
STATE_POST = ("register_state_dict_post_hook", "register_load_state_dict_post_hook")
STATE = (*STATE_PRE, *STATE_POST)
STEP_PRE = ("register_step_pre_hook", "register_optimizer_step_pre_hook")
STEP_POST = ("register_step_post_hook", "register_optimizer_step_post_hook")
