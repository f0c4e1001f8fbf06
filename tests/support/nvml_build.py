"""Builds the test bed's `libnvidia-ml.so.1` from tests/nvml with gcc, once for each set of sources.

    library = build_nvml(gcc, session_folder / "nvml")
    old_driver = build_nvml(gcc, session_folder / "nvml", without=OLD_DRIVER_LACKS)

What the bindings know and the sources do not define becomes a function that answers NOT_SUPPORTED, as on a board that
cannot; what is named in `without` is not there at all, as with an old driver.
"""

import hashlib
import re
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pynvml

from nvml_state import c_header

SOURCES = Path(__file__).resolve().parents[1] / "nvml"
MODEL = ("model.c",)
LIBRARY = (*MODEL, "library.c", "identity.c", "readings.c", "controls.c", "absent.c")
OPTIONS = "-std=gnu11 -O1 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -pthread".split()


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlLibrary:
    """A built library, in a folder of its own that may stand in `LD_LIBRARY_PATH`."""

    folder: Path

    @property
    def path(self) -> Path:
        """The driver library."""
        return self.folder / "libnvidia-ml.so.1"

    @property
    def model_path(self) -> Path:
        """The model alone, for whoever sets loads and faults: to load it is not to load a driver."""
        return self.folder / "libnvml-bed-model.so"


def build_nvml(gcc: str, folder: Path, *, without: Collection[str] = ()) -> NvmlLibrary:
    """The library, built in a folder of its own under `folder` unless it is there already."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.[ch]"))}
    texts |= {"state.h": c_header(), "absent.c": _absent(), "exports.map": _exports(without)}
    digest = hashlib.sha256(repr((gcc, OPTIONS, sorted(texts.items()))).encode()).hexdigest()[:16]
    target = folder / digest
    library = NvmlLibrary(folder=target)
    if library.path.exists():
        return library
    target.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (target / name).write_text(text, encoding="utf-8")
    _compile(gcc, target, library.model_path.name, MODEL)
    exports = ("-Wl,-soname,libnvidia-ml.so.1", "-Wl,--version-script=exports.map")
    _compile(gcc, target, library.path.name, LIBRARY, *exports)
    return library


def known_functions() -> list[str]:
    """Every function of the driver that the installed bindings call."""
    text = Path(pynvml.__file__).read_text(encoding="utf-8")
    return sorted(set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', text)))


def _absent() -> str:
    # Weak: a definition in the sources takes their place.
    line = '__attribute__((weak, visibility("default"))) int {}(void) {{ return 3; }}\n'
    return "".join(map(line.format, known_functions()))


def _exports(without: Collection[str]) -> str:
    hidden = "".join(f" {name};" for name in sorted(without))
    return f"{{ global: nvml*; local:{hidden} *; }};\n"


def _compile(gcc: str, folder: Path, output: str, sources: tuple[str, ...], *options: str) -> None:
    # Under another name first: a build that was cut off leaves no library behind.
    command = [gcc, *OPTIONS, *sources, *options, "-lm", "-o", f"{output}.unfinished"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{output} does not build\n{done.stderr}")
    (folder / f"{output}.unfinished").rename(folder / output)
