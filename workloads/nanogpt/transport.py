"""What GPUs send each other through: peer to peer, or the host's memory. Set for NCCL, and read back from its log.

NCCL decides by itself and says so at its start, one line a connection (`... via P2P/CUMEM`, `... via SHM/direct`). With
`host`, peer-to-peer, NVLink's in-switch reductions and its collective-network cousins are switched off; that nothing
went peer to peer after all is checked in that log. No GPU has run this yet.
"""

import os
import re
from collections.abc import MutableMapping
from pathlib import Path

_CONNECTION = re.compile(r"\bvia (P2P|SHM|NET|NVLS|COLLNET)\b")
_SWITCHED_OFF = {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_COLLNET_ENABLE": "0"}


class TransportError(Exception):
    """NCCL went another way than asked."""


def choose_transport(name: str, environment: MutableMapping[str, str], *, log: Path) -> None:
    """Tell NCCL, before it starts."""
    if name != "host":
        return
    environment.update(_SWITCHED_OFF)
    environment.update({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,P2P,SHM", "NCCL_DEBUG_FILE": str(log)})


def check_transport(name: str, log: Path) -> None:
    """That NCCL's log shows what was asked for.

    Raises:
        TransportError: a connection went another way, or the log shows none.
    """
    if name != "host":
        return
    used = read_transports(log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")
    if used != {"SHM"}:
        shown = ", ".join(sorted(used)) or "nothing"
        raise TransportError(f"transport=host: NCCL's log ({log}) shows {shown} where SHM was expected")


def read_transports(log: str) -> set[str]:
    """Names of all ways that connections took."""
    return set(_CONNECTION.findall(log))


def log_path() -> Path:
    """This process's own log, in the folder for temporary files."""
    return Path(os.environ.get("TMPDIR", "/tmp"), f"nccl-{os.getpid()}.log")
