"""`pynvml` in this process on a driver library of ours, as it would find an installed one: by its name.

The C library matches a name that is asked for with what is loaded already, so ours is loaded by its path first.
Afterwards both are unloaded, so that another test can load another one. Needs Linux.
"""

import _ctypes
import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pynvml


@contextmanager
def driver_loaded(path: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """The library at `path` is the driver meanwhile, and `environment` in place."""
    if pynvml.nvmlLib is not None:
        raise RuntimeError("pynvml has a driver loaded already")
    former = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    ours = ctypes.CDLL(str(path))
    try:
        yield
    finally:
        forget_driver()
        _ctypes.dlclose(ours._handle)
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def forget_driver() -> None:
    """Let `pynvml` forget the driver it has loaded, if any, as if it had just been imported."""
    if pynvml.nvmlLib is None:
        return
    while pynvml._nvmlLib_refcount:
        pynvml.nvmlShutdown()
    pynvml._nvmlGetFunctionPointer_cache.clear()
    library, pynvml.nvmlLib = pynvml.nvmlLib, None
    _ctypes.dlclose(library._handle)
