"""A fake powercap tree with known joules: for `$ECOBENCH_POWERCAP_ROOT`, in this process and in others.

    tree = PowercapTree(tmp_path / "powercap")
    tree.add_package(0, energy_uj=TURN_UJ - 50_000_000)    # wraps after 50 J
    tree.add_part(0, 0, "dram")
    with tree.running({"intel-rapl:0": 40.0, "intel-rapl:0:0": 3.0}):
        ...                                                # counters move at 40 W and 3 W

A counter that does not move counts as absent, so a tree that is to be found has to be `running`, if only for a moment.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

# What Linux states for a counter of 32 bits in units of 61.035 uJ, and how much a turn really is: one unit more.
LARGEST_UJ = 262_143_328_850
TURN_UJ = 262_143_328_911

WRITE_EVERY_S = 0.002

Files: TypeAlias = Mapping[str, int | str]


class PowercapTree:
    """The files of `/sys/class/powercap` under `root`, as far as they are read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folders: dict[str, Path] = {}
        self._energies_uj: dict[str, int] = {}
        root.mkdir(parents=True, exist_ok=True)

    def add_package(
        self, index: int, *, name: str | None = None, energy_uj: int = 1_000_000, files: Files | None = None
    ) -> str:
        """A package `intel-rapl:INDEX`; its zone name. `files`: further ones, as `constraint_0_max_power_uw`."""
        zone = f"intel-rapl:{index}"
        self._add(zone, self.root / zone, name or f"package-{index}", energy_uj, files or {})
        return zone

    def add_part(
        self, package: int, part: int, name: str, *, energy_uj: int = 1_000_000, files: Files | None = None
    ) -> str:
        """A part of a package, inside its folder and, as in the real tree, linked from the top."""
        zone = f"intel-rapl:{package}:{part}"
        self._add(zone, self.root / f"intel-rapl:{package}" / zone, name, energy_uj, files or {})
        (self.root / zone).symlink_to(self._folders[zone])
        return zone

    def path(self, zone: str) -> Path:
        """The counter's file."""
        return self._folders[zone] / "energy_uj"

    def write(self, zone: str, text: str | bytes) -> None:
        """Put anything into a counter's file, at once: no reader sees half of it."""
        path = self.path(zone)
        fresh = path.with_name("energy_uj.fresh")
        fresh.write_bytes(text.encode() if isinstance(text, str) else text)
        os.replace(fresh, path)

    def set(self, zone: str, energy_uj: int) -> None:
        """Set a counter: also a reset."""
        self._energies_uj[zone] = energy_uj
        self.write(zone, f"{energy_uj}\n")

    def advance(self, zone: str, energy_uj: int) -> None:
        """Let a zone draw energy; its counter wraps as the hardware does."""
        self.set(zone, (self._energies_uj[zone] + energy_uj) % TURN_UJ)

    @contextmanager
    def running(self, powers_w: Mapping[str, float]) -> Iterator[None]:
        """Zones that draw constant powers meanwhile. Between writes (2 ms) a counter is behind, and never ahead."""
        stop = threading.Event()

        def run() -> None:
            drawn_uj = dict.fromkeys(powers_w, 0)
            start_ns = time.monotonic_ns()
            while not stop.wait(WRITE_EVERY_S):
                for zone, power_w in powers_w.items():
                    due_uj = int((time.monotonic_ns() - start_ns) / 1e3 * power_w)
                    self.advance(zone, due_uj - drawn_uj[zone])
                    drawn_uj[zone] = due_uj

        thread = threading.Thread(target=run, name="powercap-tree", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _add(self, zone: str, folder: Path, name: str, energy_uj: int, files: Files) -> None:
        folder.mkdir(parents=True)
        self._folders[zone] = folder
        for file, content in {"name": name, "max_energy_range_uj": LARGEST_UJ, **files}.items():
            (folder / file).write_text(f"{content}\n")
        self.set(zone, energy_uj)
