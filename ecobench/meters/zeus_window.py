"""Zeus in a process of its own: one measurement window at a time, opened and closed by orders on a pipe.

Zeus takes seconds and 1,600 modules to import, and has faults that must not become ours. Started by
`ecobench.meters.zeus` as `python -m ecobench.meters.zeus_window PARENT_PID GPU...`, each a UUID or an NVML index. It
speaks JSON, one object a line:

    order (stdin)        report (stdout)
                         {"is": "ready", "version": ..., "uuids": [...]}
    {"do": "begin"}      {"is": "begun", "start_ns": ..., "stop_ns": ...}                   around the call
    {"do": "end"}        {"is": "ended", "start_ns": ..., "stop_ns": ..., "energy_j": [J, ...]}
                         {"is": "failed", "reason": ...}                                   and it is gone

GPUs are handed to Zeus by NVML index, the one form of CUDA_VISIBLE_DEVICES that it reads without fail. It does not
synchronise anything (there is no CUDA here) and reads no CPU: RAPL would cost it a process that outlives it.

It ends with its parent: by the closing pipe, and by the kernel where the parent is killed.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from ecobench.processes import die_with_parent

KEY = "trial"


def main(argv: Sequence[str]) -> int:
    """Serve until the pipe closes; 1 where Zeus cannot be used."""
    die_with_parent()
    if os.getppid() != int(argv[0]):  # it was gone before it could be said
        return 1
    reports_fd = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # nothing else may speak on the report pipe

    def report(**message: Any) -> None:
        os.write(reports_fd, json.dumps(message).encode() + b"\n")

    try:
        monitor, version, uuids = _open(argv[1:])
        report(**{"is": "ready", "version": version, "uuids": uuids})
        for line in sys.stdin:
            if json.loads(line)["do"] == "begin":
                start_ns = time.monotonic_ns()
                monitor.begin_window(KEY, sync_execution=False, restart=True)
                report(**{"is": "begun", "start_ns": start_ns, "stop_ns": time.monotonic_ns()})
            else:
                start_ns = time.monotonic_ns()
                measured = monitor.end_window(KEY, sync_execution=False)
                stop_ns = time.monotonic_ns()
                energy_j = [measured.gpu_energy.get(index) for index in range(len(uuids))]
                report(**{"is": "ended", "start_ns": start_ns, "stop_ns": stop_ns, "energy_j": energy_j})
    except BrokenPipeError:
        return 1
    except Exception as error:  # noqa: BLE001  # whatever is wrong with Zeus costs a note, and no run
        report(**{"is": "failed", "reason": f"{type(error).__name__}: {error}".splitlines()[0][:300]})
        return 1
    return 0


def _open(gpus: Sequence[str]) -> tuple[Any, str, list[str]]:
    """The monitor of these boards, in this order, Zeus's version, and their UUIDs."""
    import pynvml  # noqa: PLC0415  # seconds, together with Zeus: after the parent was made sure of

    pynvml.nvmlInit()
    handles = [
        pynvml.nvmlDeviceGetHandleByIndex(int(gpu)) if gpu.isdecimal() else pynvml.nvmlDeviceGetHandleByUUID(gpu)
        for gpu in gpus
    ]
    uuids = [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(pynvml.nvmlDeviceGetIndex(handle)) for handle in handles)

    import zeus  # noqa: PLC0415
    from zeus.monitor import ZeusMonitor  # noqa: PLC0415

    monitor = ZeusMonitor(gpu_indices=list(range(len(gpus))), cpu_indices=[])
    if len(monitor.gpus) != len(gpus):  # it takes a driver that does not start for a machine without GPUs
        raise RuntimeError(f"Zeus found {len(monitor.gpus)} of {len(gpus)} GPUs")
    return monitor, str(zeus.__version__), uuids


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
