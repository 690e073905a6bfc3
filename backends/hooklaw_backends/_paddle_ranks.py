"""The verbs of several processes that Paddle has: paddle.DataParallel over gloo, on this machine's loopback."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hooklaw import Capability, NotRunError

LOOPBACK = "127.0.0.1"
TIMEOUT = 10
"""Seconds that a rank waits for the first one: less than a rule may take."""
SHARDED = "a sharded Layer of Paddle moves its parameters by streams of a GPU"
TENSORS = "distributed tensors of Paddle are those of auto_parallel, which this backend does not drive"
HOOK = "no hook can take the place of the all-reduce of paddle.DataParallel"
LACKS: Mapping[Capability, str] = {
    Capability.PROCESS_SUBGROUPS: "two groups over gloo were joined to each other: a rank got what another group sent",
    Capability.INIT_SYNC: "paddle.DataParallel always shares the parameters of rank 0 at first",
    Capability.BUFFER_SYNC: "paddle.DataParallel shares buffers once, when it is made",
    Capability.STATIC_GRAPH: "paddle.DataParallel cannot be told that the graph is the same in each pass",
    Capability.GRADIENT_BUCKETS: "paddle.DataParallel takes the size of its buckets, but no gradient_as_bucket_view",
    Capability.COMM_HOOKS: HOOK,
    Capability.DEFAULT_COMM_HOOKS: HOOK,
    Capability.UNEVEN_INPUTS: "paddle.DataParallel has no context in which ranks may run unequal numbers of passes",
    Capability.FULLY_SHARD: SHARDED,
    Capability.FULLY_SHARDED_DATA_PARALLEL: SHARDED,
    Capability.HYBRID_SHARDING: SHARDED,
    Capability.DISTRIBUTED_TENSORS: TENSORS,
    Capability.TENSOR_PARALLEL: TENSORS,
}


class Ranks:
    """The verbs of a rank that are not PyTorch's own; TorchLike has the others."""

    framework: Any

    def init_process_group(self, rank: int, world_size: int, store: str) -> None:
        port = _port(rank, Path(store))
        os.environ |= {
            "PADDLE_DISTRI_BACKEND": "gloo",
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": str(world_size),
            "PADDLE_CURRENT_ENDPOINT": f"{LOOPBACK}:{port}",
            "PADDLE_TRAINER_ENDPOINTS": f"{LOOPBACK}:{port}",
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": port,
        }
        self.framework.distributed.init_parallel_env()

    def distributed_data_parallel(self, module: Any, **options: Any) -> Any:
        return self.framework.DataParallel(module, **options)


def _port(rank: int, store: Path) -> str:
    """Return a free port that the first rank chooses, and tells the others in a file that all ranks share."""
    if rank == 0:
        with socket.create_server((LOOPBACK, 0)) as server:
            store.write_text(f"{server.getsockname()[1]}\n")
    deadline = time.monotonic() + TIMEOUT
    while not (said := store.read_text() if store.exists() else "").endswith("\n"):
        if time.monotonic() > deadline:
            raise NotRunError("the first rank has chosen no port for Paddle's store")
        time.sleep(0.01)
    return said.strip()
