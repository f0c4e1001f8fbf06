"""The kernel's page cache: files dropped out of it, and how much of one is in it. For runs with a cold start.

Dropping is a request that the kernel may not follow (a file system in memory, pages that someone has mapped), so it is
checked.
"""

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

# A page that a read-ahead of something else brought in again is no warm cache.
ALLOWED_SHARE = 0.01


class PageCacheError(Exception):
    """Pages stayed; the message names the file."""


def read_through(paths: Iterable[Path]) -> None:
    """Read files once, so that their pages are in memory."""
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.read(2**24):
                pass


def drop(paths: Iterable[Path]) -> None:
    """Have the kernel forget the pages of files that nobody has mapped.

    Raises:
        PageCacheError: it did not.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        share = resident_share(path)
        if share > ALLOWED_SHARE:
            raise PageCacheError(
                f"data_cache=cold: {share:.0%} of {path} stayed in memory. Something else has it open, or its file "
                "system lives in memory: put the data on a disk ($ECOBENCH_DATA), or use data_cache=warm"
            )


def resident_share(path: Path) -> float:
    """Share of a file's pages that are in memory, 0 to 1."""
    size = path.stat().st_size
    if not size:
        return 0.0
    n_pages = -(-size // mmap.PAGESIZE)
    pages = (ctypes.c_ubyte * n_pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE,
                                            flags=mmap.MAP_PRIVATE) as mapped:  # fmt: skip  # writable: ctypes asks
        first = ctypes.c_ubyte.from_buffer(mapped)
        try:
            if libc.mincore(ctypes.addressof(first), size, pages):
                raise OSError(ctypes.get_errno(), f"mincore of {path}")
        finally:
            del first
    return sum(page & 1 for page in pages) / n_pages
