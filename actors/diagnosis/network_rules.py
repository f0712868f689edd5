"""Processes that find each other, or lose each other: NCCL, Gloo, the store, RDMA."""

from __future__ import annotations

from actors.diagnosis.rule import Rule, Weight, words
from orchestrator.outcome import Label, Phase

RULES = (
    Rule(
        "rdma_set_up",
        Label.NET_CONFIG,
        words(
            r"(?:\w+\.cpp:\d+\s+)?(?:GID is NULL|No suitable GID found|Failed to open device \S+ on port.* with GID"
            r"|RdmaTransport: (?:No available RNIC|cannot initialize)|Failed to modify QP to RTR)"
            r"|.{0,40}Mooncake Transfer Engine initialization failed|.{0,120}cannot allocate mlx5dv_devx_uar"
            r"|.{0,160}non-zero status: \d+:? (?:ibv_\w+ failed|ep_connect failed|connect EPS failed"
            r"|transport create connect failed)|nvshmem (?:setup connections|initialization) failed"
            r"|.{0,120}init failed for transport: IB|.{0,80}NCCL WARN .{0,80}\bibv_\w+ failed"
            r"|.{0,80}NCCL WARN .{0,40}(?:No IB devices|Failed to open .*mlx)"
        ),
        "rdma_context.cpp:1132  GID is NULL, please check your GID index by specifying MC_GID_INDEX",
        means="RDMA could not be set up; device names and GID indices differ from host to host",
        usual=Phase.DIST_INIT,
        source="Mooncake, NVSHMEM, NCCL",
    ),
    Rule(
        "rdma_memory_not_registered",
        Label.NET_CONFIG,
        words(r"Failed to register memory 0x"),
        "E0512 10:03:01.210035 72983 rdma_context.cpp:191] Failed to register memory 0x733a96e00000: Bad address [14]",
        weight=Weight.HINT,
        means="the network card cannot reach the GPU's memory: no GPUDirect RDMA, or too little locked memory",
        advice=("load nvidia_peermem, and give the container unlimited locked memory (--ulimit memlock=-1)",),
        usual=Phase.KV_POOL,
        source="Mooncake",
    ),
    Rule(
        "expert_exchange_refuses_sizes",
        Label.CONFIG_CONFLICT,
        words(r"Failed: Assertion error \S{0,200}\.(?:cuh?|cpp|hpp):\d+ "),
        "RuntimeError: Failed: Assertion error /workspace/DeepEP/csrc/kernels/internode.cu:1713 "
        "'num_max_nvl_chunked_recv_tokens / num_rdma_ranks > num_max_rdma_chunked_send_tokens'",
        weight=Weight.HINT,
        means="the library that moves tokens between experts refuses its sizes; the assertion names them",
        advice=("compare --moe-a2a-backend, --deepep-mode and its sizes with the number of ranks and of hidden units",),
        usual=Phase.SERVING,
        source="DeepEP",
    ),
    Rule(
        "no_network_interface",
        Label.NET_CONFIG,
        words(
            r".{0,160}(?:Unable to find (?:address|interface) for: |no socket interface found"
            r"|Unable to resolve hostname)"
        ),
        "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to "
        "find address for: eth0",
        means="the network interface that was named does not exist on this host",
        advice=("set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to an interface that every host has",),
        usual=Phase.DIST_INIT,
        source="Gloo, NCCL",
    ),
    Rule(
        "collective_timed_out",
        Label.NCCL_TIMEOUT,
        words(
            r"(?:\[Rank \d+\] )?(?:Watchdog caught collective operation timeout"
            r"|Some NCCL operations have failed or timed out"
            r"|Work WorkNCCL\(.*timed out in blocking wait)|.{0,60}collective timeout from"
            r"|.{0,20}ProcessGroupNCCL's watchdog got stuck|.{0,80}Application timeout caused pair closure"
            r"|.{0,120}Timed out waiting \d+ms for (?:recv|send) operation|.{0,80}notify wait timeout"
            r"|.{0,40}\bran for \d+ milliseconds before timing out|.{0,20}DeepEP (?:timeout\b|error: .{0,20}timeout)"
        ),
        "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, "
        "NumelIn=19008, NumelOut=152064, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.",
        means="a rank waited for the others until the time was up: one of them had stopped or was slower",
        usual=Phase.SERVING,
        source="torch",
    ),
    Rule(
        "ranks_did_not_meet",
        Label.NCCL_INIT,
        words(
            r"Timed out after \d+ seconds waiting for clients|.{0,60}The client socket has (?:timed out"
            r"|failed to connect)"
            r"|.{0,60}is setting up NCCL communicator and retr\w+ ncclUniqueId|.{0,40}Gloo connectFullMesh failed"
            r"|.{0,60}Timeout waiting for key: |.{0,80}store->get\('[^']*'\) got error|.{0,160}hcclCommInitRootInfo"
        ),
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 2/4 clients joined.",
        means="the ranks did not all come together at the start",
        usual=Phase.DIST_INIT,
        source="torch",
    ),
    Rule(
        "nccl_failed",
        Label.NCCL_INIT,
        words(
            r"(?:Failed[,:]? )?(?:NCCL|RCCL|HCCL) error\b|nccl(?:Unhandled\w*|System|Internal|InvalidUsage|Remote)Error"
            r"|.{0,60}DIST call hccl api failed"
        ),
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        means="the communication library failed between the GPUs",
        usual=Phase.DIST_INIT,
        source="NCCL",
    ),
    Rule(
        "connection_refused",
        Label.NCCL_INIT,
        words(
            r"(?:.{0,120} )?NCCL WARN .{0,120}(?:Connection refused|Connection timed out|No route to host"
            r"|Error while attaching to shared memory segment)"
        ),
        "host-a:1180825:1180825 [4] os/linux.cc:200 NCCL WARN ncclOsSocketPollConnect: connect to 10.0.0.1<58525> "
        "returned Connection refused, exceeded error retry count after 35 attempts",
        weight=Weight.HINT,
        usual=Phase.DIST_INIT,
        source="NCCL",
    ),
    Rule(
        "other_rank_did_not_load",
        Label.PEER_RANK_FAILED,
        words(r"TP rank \d+ could finish the model loading"),
        "ValueError: TP rank 1 could finish the model loading, but there are other ranks that didn't finish "
        "loading. It "
        "is likely due to unexpected failures (e.g., OOM) or a slow node.",
        weight=Weight.HINT,
        means="this rank only tells that another one did not get through",
        usual=Phase.WEIGHTS,
    ),
    Rule(
        "other_rank_is_gone",
        Label.PEER_RANK_FAILED,
        words(
            r".{0,160}Connection (?:closed|reset) by (?:remote )?peer\b|.{0,120}Did the remote server shutdown or crash"
            r"|.{0,80}sendBytes failed.{0,120}Broken pipe|.{0,60}(?:peer|remote) rank .{0,40}(?:exited|died|failed)"
        ),
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:10812",
        weight=Weight.HINT,
        means="the connection to another rank broke: that one died first",
        usual=Phase.SERVING,
        source="Gloo, torch",
    ),
)
