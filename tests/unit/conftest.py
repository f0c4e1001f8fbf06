"""What tests of storing need: a disk that is soon full."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path, require: Callable[..., str]) -> Iterator[Path]:
    """A file system of 64 KiB and 16 files. Only where this machine lets a test mount one."""
    folder = tmp_path / "small-disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=16,mode=700", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        is_mounted = False
    require("mount", is_mounted, why="a file system of its own, which root may have")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)
