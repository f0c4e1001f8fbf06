"""The live clock: monotonic nanoseconds, comparable between all processes of one boot."""

import time
from pathlib import Path


class LiveClock:
    """`Clock` on the machine's own monotonic clock (CLOCK_MONOTONIC, the one that workloads stamp with)."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary start that all processes of this boot share."""
        return time.monotonic_ns()

    def sleep_until(self, time_ns: int) -> None:
        """Return at or just after `time_ns`; at once where that has passed."""
        remaining_ns = time_ns - time.monotonic_ns()
        if remaining_ns > 0:
            time.sleep(remaining_ns / 1e9)


def read_boot_id() -> str:
    """Identity of this boot: monotonic times compare exactly within one. `unknown` where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def time_resolution_ns() -> float:
    """Resolution that the system states for the monotonic clock, in ns."""
    return time.get_clock_info("monotonic").resolution * 1e9
