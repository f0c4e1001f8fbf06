"""A node of NVIDIA GPUs made of nothing: an NVML of our own, its boards' loads and faults, and the truth about them.

    bed = NvmlBed.create(tmp_path / "node.state", build_nvml(gcc, folder), [H100] * 8)
    with bed, bed.loaded():                   # `pynvml` in this process now speaks to it
        bed.set_load(0, 650)                  # GPU 0 would draw 650 W at full clock
        subprocess.run(..., env={**os.environ, **bed.environment})    # and so do pynvml and zeus in this one
        truth = bed.truth(0)                  # energy and power in closed form: see nvml_truth.py

    bed = NvmlBed.attach(os.environ)          # in a child: a stand-in for a workload that drives the load

Everything can be changed while others read: state is shared, and what has been read already stays true.
"""

import ctypes
import mmap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nvml_boards import NOT_SUPPORTED, install, truth_of
from nvml_build import NvmlLibrary
from nvml_driver import driver_loaded
from nvml_models import GpuModel
from nvml_state import MAX_GPUS, PRIVILEGED_VARIABLE, STATE_VARIABLE, Gpu, State
from nvml_truth import GpuTruth

LIBRARY_VARIABLE = "NVML_BED_LIBRARY"
DRIVER_NOT_LOADED, LOST, DRIVER_MISMATCH, UNKNOWN = 9, 15, 18, 999
THROTTLES = {"sw_thermal": 0x20, "hw_thermal": 0x40, "brake": 0x80}
ALL_GPUS = -1


class NvmlBed:
    """The shared state of one node, mapped into this process."""

    def __init__(self, path: Path, library: NvmlLibrary) -> None:
        self.path = path
        self.nvml = library
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), ctypes.sizeof(State))
        self._state: Any = State.from_buffer(self._memory)
        self._model = ctypes.CDLL(str(library.model_path))
        self._model.bed_now_ns.restype = ctypes.c_int64
        self._n_locks = 0

    @classmethod
    def create(
        cls,
        path: Path,
        library: NvmlLibrary,
        models: Sequence[GpuModel],
        *,
        uptime_s: float = 60,
        driver: str = "580.95.05",
    ) -> Self:
        """A node of idle boards whose driver was loaded `uptime_s` ago, persistence on; who runs here is root."""
        if not 1 <= len(models) <= MAX_GPUS:
            raise ValueError(f"a node has 1 to {MAX_GPUS} GPUs, not {len(models)}")
        with path.open("xb") as file:
            file.truncate(ctypes.sizeof(State))
        bed = cls(path, library)
        state = bed._state
        bed._call("bed_prepare")
        state.n_gpus = len(models)
        state.cuda_version = 13000
        state.driver_version = driver.encode()
        state.nvml_version = f"13.{driver}".encode()
        born_ns = bed.now_ns - round(uptime_s * 1e9)
        for index, model in enumerate(models):
            # The board is older than its driver: no window of a sensor, nor 10 s of heat, reaches before its start.
            start_ns = born_ns - 20_000_000_000
            install(state.gpus[index], model, index, start_ns)
            bed._call("bed_apply_settings", index, start_ns)
            bed._call("bed_reset_counter", index, born_ns)
        return bed

    @classmethod
    def attach(cls, environment: Mapping[str, str]) -> Self:
        """The bed that `environment` names, from another process."""
        return cls(Path(environment[STATE_VARIABLE]), NvmlLibrary(folder=Path(environment[LIBRARY_VARIABLE])))

    @property
    def environment(self) -> dict[str, str]:
        """What a child process needs to find this node's driver."""
        folder = str(self.nvml.folder)
        return {"LD_LIBRARY_PATH": folder, STATE_VARIABLE: str(self.path), LIBRARY_VARIABLE: folder}

    @property
    def privileged_environment(self) -> dict[str, str]:
        """The same for a process that is root's, after `only_root_controls`."""
        return {**self.environment, PRIVILEGED_VARIABLE: "1"}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the state; the file stays, and so do the processes that use it."""
        if not self._memory.closed:
            del self._state
            self._memory.close()

    def loaded(self) -> AbstractContextManager[None]:
        """`pynvml` in this process finds this node's driver meanwhile."""
        return driver_loaded(self.nvml.path, {STATE_VARIABLE: str(self.path)})

    # ---- time ----

    @property
    def now_ns(self) -> int:
        """The bed's time: the monotonic clock, or where it was held."""
        return int(self._call("bed_now_ns"))

    def hold(self, time_ns: int | None = None) -> int:
        """Let time stand still, for all processes, now or at an instant; returns it. Seconds need no waiting then."""
        self._state.held_ns = time_ns or self.now_ns
        return int(self._state.held_ns)

    def advance(self, duration_ns: int) -> int:
        """Move held time on; returns where it stands."""
        if not self._state.held_ns:
            raise RuntimeError("time is not held")
        self._state.held_ns += duration_ns
        return int(self._state.held_ns)

    def release(self) -> None:
        """Time is the monotonic clock's again."""
        self._state.held_ns = 0

    # ---- loads ----

    def set_load(self, gpu: int, power_w: float, *, at_ns: int | None = None, while_pid: int | None = None) -> None:
        """From now (or a later instant) on, the board would draw this at full clock, limits aside.

        `while_pid`: it falls to idle once that process is gone and anybody reads the board.
        """
        self._set_shape(gpu, at_ns, high_w=power_w, low_w=power_w, while_pid=while_pid)

    def set_idle(self, gpu: int, *, at_ns: int | None = None) -> None:
        """No load from now on."""
        self.set_load(gpu, self._state.gpus[gpu].idle_w, at_ns=at_ns)

    def set_square_wave(
        self,
        gpu: int,
        *,
        high_w: float,
        low_w: float,
        period_ns: int,
        duty_share: float = 0.5,
        origin_ns: int | None = None,
        at_ns: int | None = None,
        while_pid: int | None = None,
    ) -> None:
        """A load that is high for `duty_share` of each period, counted from `origin_ns` (the start where None)."""
        high_ns = round(period_ns * duty_share)
        self._set_shape(
            gpu,
            at_ns,
            high_w=high_w,
            low_w=low_w,
            period_ns=period_ns,
            high_ns=high_ns,
            origin_ns=origin_ns,
            while_pid=while_pid,
        )

    def set_steps(self, gpu: int, steps: Sequence[tuple[int, float]], *, at_ns: int | None = None) -> None:
        """A schedule of (duration in ns, watts) from now on; idle after it. Ramps are many small steps."""
        with self._locked():
            time_ns = self.now_ns if at_ns is None else at_ns
            for duration_ns, power_w in steps:
                self._set_shape(gpu, time_ns, high_w=power_w, low_w=power_w)
                time_ns += duration_ns
            idle_w = self._state.gpus[gpu].idle_w
            self._set_shape(gpu, time_ns, high_w=idle_w, low_w=idle_w)

    # ---- sensors ----

    def set_sensor(
        self,
        gpu: int,
        path: str,
        *,
        period_ns: int | None = None,
        phase_ns: int | None = None,
        window_ns: int | None = None,
        gain: float | None = None,
        offset_w: float | None = None,
    ) -> None:
        """Change what `path` (`counter`, `instant`, `average`) does. A counter's window of 0 sees all of the time."""
        values = {
            "period_ns": period_ns,
            "phase_ns": phase_ns,
            "window_ns": window_ns,
            "gain": gain,
            "offset_w": offset_w,
        }
        with self._locked():
            sensor = getattr(self._state.gpus[gpu], path)
            for name, value in values.items():
                if value is not None:
                    setattr(sensor, name, value)
            self._state.gpus[gpu].seen_ns = 0

    def set_counter_quantum(self, gpu: int, quantum_mj: int) -> None:
        """The counter moves in steps of this."""
        self._state.gpus[gpu].counter_quantum_mj = quantum_mj

    def stamp_updates(self, *, is_on: bool = True) -> None:
        """Field values carry the instant of the sensor's last update instead of that of the call."""
        self._state.stamps_updates = is_on

    def set_latency(self, gpu: int, latency_ns: int) -> None:
        """Every call to this board takes at least so long; others are not held up."""
        self._state.gpus[gpu].latency_ns = latency_ns

    # ---- faults ----

    def fail(self, function: str, code: int, *, gpu: int = ALL_GPUS) -> None:
        """Let a function (`*`: each) answer a code, for one board or all."""
        with self._locked():
            rule = self._state.rules[self._state.n_rules]
            rule.name, rule.gpu, rule.code = function.encode(), gpu, code
            self._state.n_rules += 1

    def heal(self) -> None:
        """Undo every `fail` and `lose`."""
        with self._locked():
            self._state.n_rules = 0

    def lose(self, gpu: int) -> None:
        """The board falls off the bus: GPU_IS_LOST to each call."""
        self.fail("*", LOST, gpu=gpu)

    def fail_init(self, code: int) -> None:
        """What `nvmlInit` answers: 18 driver/library mismatch, 9 no driver, 999; 0 is well."""
        self._state.init_code = code

    def fail_field(self, gpu: int, field: int, code: int = NOT_SUPPORTED) -> None:
        """One field value answers a code; 83 also makes the energy call do so."""
        self._state.gpus[gpu].field_codes[field] = code

    def lack_fields(self, fields: Collection[int]) -> None:
        """No board has these field values, as with an old driver."""
        for gpu in range(self._state.n_gpus):
            for field in fields:
                self.fail_field(gpu, field)

    def remove_counter(self, gpu: int) -> None:
        """No energy counter, as on some virtual GPUs."""
        self.fail_field(gpu, 83)
        self.fail_field(gpu, 191)

    def remove_power(self, gpu: int) -> None:
        """Power is N/A, by every path but the counter."""
        self.fail("nvmlDeviceGetPowerUsage", NOT_SUPPORTED, gpu=gpu)
        self.fail_field(gpu, 185)
        self.fail_field(gpu, 186)

    def freeze_power(self, gpu: int, *, at_ns: int | None = None) -> None:
        """Power readings stay what they are now; the board and its counter go on."""
        self._state.gpus[gpu].power_frozen_ns = self.now_ns if at_ns is None else at_ns

    def freeze_counter(self, gpu: int, *, at_ns: int | None = None) -> None:
        """The counter stands still; the board goes on."""
        self._state.gpus[gpu].counter_frozen_ns = self.now_ns if at_ns is None else at_ns

    def reset_counter(self, gpu: int) -> None:
        """The counter starts again from 0, as after a GPU reset."""
        with self._locked():
            self._call("bed_reset_counter", gpu, self.now_ns)

    def only_root_controls(self, *, is_on: bool = True) -> None:
        """Setters answer NO_PERMISSION, but to processes in `privileged_environment`."""
        self._state.only_root_controls = is_on

    def unload_when_unused(self, *, is_on: bool = True) -> None:
        """Boards without persistence forget limit, lock and counter when the last user leaves the driver."""
        self._state.unloads_unused = is_on

    def throttle(self, gpu: int, reason: str | None, *, clock_mhz: int = 0) -> None:
        """Clocks come down to `clock_mhz` for `sw_thermal`, `hw_thermal` or `brake`; None: no more."""
        self._change(gpu, throttle_reasons=THROTTLES[reason] if reason else 0, throttle_mhz=clock_mhz)

    def set_mig(self, gpu: int, *, is_on: bool = True) -> None:
        self._state.gpus[gpu].mig_on = is_on

    def set_ambient(self, gpu: int, temperature_c: float) -> None:
        """What an unpowered board would have."""
        self._state.gpus[gpu].ambient_c = temperature_c

    def set_persistence(self, gpu: int, *, is_on: bool = True) -> None:
        self._state.gpus[gpu].persistence = is_on

    def list_processes(self, gpu: int, pids: Mapping[int, int], *, is_real: bool = False) -> None:
        """The compute processes on a board: memory in bytes by pid. `is_real`: listed while they live."""
        with self._locked():
            board = self._state.gpus[gpu]
            board.n_processes = len(pids)
            for slot, (pid, memory_bytes) in enumerate(pids.items()):
                process = board.processes[slot]
                process.pid, process.memory_bytes, process.is_real = pid, memory_bytes, is_real

    # ---- limits, as someone else would change them ----

    def set_limit(self, gpu: int, limit_w: float) -> None:
        """Somebody else sets the limit, past the driver's own checks."""
        self._change(gpu, requested_mw=round(limit_w * 1e3))

    def set_out_of_band_limit(self, gpu: int, limit_w: float | None) -> None:
        """The machine's own controller holds the board below what was requested."""
        self._change(gpu, out_of_band_mw=round((limit_w or 0) * 1e3))

    def ignore_limits(self, gpu: int, *, is_on: bool = True) -> None:
        """Setting a limit succeeds and is read back, and changes nothing."""
        self._change(gpu, ignores_limit=is_on)

    def limits_w(self, gpu: int) -> tuple[float, float]:
        """Requested and enforced."""
        board = self._state.gpus[gpu]
        return board.requested_mw / 1e3, board.enforced_mw / 1e3

    def lock_mhz(self, gpu: int) -> int | None:
        """Highest clock of a lock in force: what no driver call tells."""
        return self._state.gpus[gpu].lock_mhz or None

    def has_persistence(self, gpu: int) -> bool:
        return bool(self._state.gpus[gpu].persistence)

    # ---- who they are, and the truth ----

    @property
    def uuids(self) -> tuple[str, ...]:
        """By index."""
        return tuple(gpu.uuid.decode() for gpu in self._state.gpus[: self._state.n_gpus])

    def set_uuids(self, uuids: Sequence[str]) -> None:
        """Other UUIDs, by index."""
        for gpu, uuid in zip(self._state.gpus[: self._state.n_gpus], uuids, strict=True):
            gpu.uuid = uuid.encode()

    def truth(self, gpu: int) -> GpuTruth:
        """The board's history as it stands now, with its sensors."""
        with self._locked():
            board = Gpu.from_buffer_copy(self._state.gpus[gpu])
        return truth_of(board)

    def _set_shape(
        self,
        gpu: int,
        at_ns: int | None,
        *,
        high_w: float,
        low_w: float,
        period_ns: int = 0,
        high_ns: int = 0,
        origin_ns: int | None = None,
        while_pid: int | None = None,
    ) -> None:
        with self._locked():
            start_ns = self.now_ns if at_ns is None else at_ns
            origin_ns = start_ns if origin_ns is None else origin_ns
            powers = (ctypes.c_double(high_w), ctypes.c_double(low_w))
            self._call("bed_set_load", gpu, start_ns, origin_ns, period_ns, high_ns, *powers)
            self._state.gpus[gpu].load_pid = while_pid or 0

    def _change(self, gpu: int, **settings: int) -> None:
        with self._locked():
            for name, value in settings.items():
                setattr(self._state.gpus[gpu], name, value)
            self._call("bed_apply_settings", gpu, self.now_ns)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # One thread of a process drives a bed; within it, one change may be made of others.
        if self._n_locks == 0:
            self._call("bed_lock")
        self._n_locks += 1
        try:
            yield
        finally:
            self._n_locks -= 1
            if self._n_locks == 0:
                self._call("bed_unlock")

    def _call(self, function: str, *arguments: object) -> Any:
        # Whole numbers go as 64 bits: on the machines at hand a register holds them, whatever the parameter's size.
        packed = [ctypes.c_int64(value) if isinstance(value, int) else value for value in arguments]
        return getattr(self._model, function)(ctypes.byref(self._state), *packed)
