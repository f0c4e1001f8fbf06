"""What all processes of an NVML test bed share: the layout of its state file, written once, here.

The C library reads the same layout from a header that `c_header` makes of these structures, so the two cannot drift.

How power is kept, per GPU: a list of stretches in order of time. Within one stretch the load has one shape (a constant
or a square wave) and the settings of the board do not change, so power takes two values at most and every integral over
time has a closed form. Whatever changes (a load, a limit, a clock lock) starts a new stretch; the past stays as it was:

    stretches    |--- idle, 700 W ---|- wave, 700 W -|- wave, 500 W -------...
                 born                load set        limit set by any process
"""

import ctypes
from ctypes import Structure, c_char, c_double, c_int32, c_int64, c_uint16, c_uint32, c_uint64
from typing import Any

STATE_VARIABLE = "NVML_BED_STATE"  # path of the state file
PRIVILEGED_VARIABLE = "NVML_BED_PRIVILEGED"  # "1": this process is root's, where only root may control

MAX_GPUS = 16
MAX_STRETCHES = 8192
MAX_PROCESSES = 16
MAX_RESETS = 16
MAX_CLIENTS = 64
MAX_RULES = 32
N_FIELDS = 320
MUTEX_BYTES = 64


class Stretch(Structure):
    """Time from `start_ns` to the next stretch: one shape of load under one set of settings.

    The load is what the GPU would draw at its highest clock without a limit: `high_w` for `high_ns` from `origin_ns` on
    in every period, `low_w` for the rest; a period of 0 is a constant `high_w`. The last six fields are sums up to
    `start_ns`; the C library keeps them.
    """

    _fields_ = [
        ("start_ns", c_int64),
        ("origin_ns", c_int64),
        ("period_ns", c_int64),
        ("high_ns", c_int64),
        ("high_w", c_double),
        ("low_w", c_double),
        ("enforced_w", c_double),
        ("highest_mhz", c_uint32),
        ("throttle_reasons", c_uint32),
        ("energy_j", c_double),
        ("cap_ns", c_int64),
        ("sw_thermal_ns", c_int64),
        ("hw_thermal_ns", c_int64),
        ("brake_ns", c_int64),
        ("busy_ns", c_int64),
    ]


class Sensor(Structure):
    """How one reading follows the truth: mean power of `window_ns` before each update, gain and offset on top.

    For the counter, a window of 0 means that it sees all of the time.
    """

    _fields_ = [
        ("period_ns", c_int64),
        ("phase_ns", c_int64),
        ("window_ns", c_int64),
        ("gain", c_double),
        ("offset_w", c_double),
    ]


class ListedProcess(Structure):
    """A compute process as the driver lists it; `is_real`: only while it lives."""

    _fields_ = [("pid", c_uint32), ("is_real", c_uint32), ("memory_bytes", c_uint64)]


class Rule(Structure):
    """A function that answers `code` instead: `name` or `*`, for one GPU or (-1) for all."""

    _fields_ = [("name", c_char * 64), ("gpu", c_int32), ("code", c_uint32)]


class Gpu(Structure):
    """One board: who it is, what it can, how it is set, and its history of power."""

    _fields_ = [
        ("name", c_char * 96),
        ("uuid", c_char * 96),
        ("serial", c_char * 32),
        ("vbios", c_char * 32),
        ("bus_id", c_char * 32),
        ("pci_domain", c_uint32),
        ("pci_bus", c_uint32),
        ("pci_device_id", c_uint32),
        ("minor", c_uint32),
        ("architecture", c_uint32),
        ("cuda_major", c_int32),
        ("cuda_minor", c_int32),
        ("brand", c_uint32),
        ("memory_bytes", c_uint64),
        ("memory_used_bytes", c_uint64),
        # The law of power.
        ("idle_w", c_double),
        ("lowest_mhz", c_uint32),
        ("highest_mhz", c_uint32),
        ("step_mhz", c_uint32),
        ("idle_mhz", c_uint32),
        ("memory_mhz", c_uint32),
        ("ambient_c", c_double),
        ("c_per_w", c_double),
        # Limits and locks. `enforced_mw` stands apart, for a board that does not do as it was told.
        ("min_mw", c_uint32),
        ("default_mw", c_uint32),
        ("max_mw", c_uint32),
        ("requested_mw", c_uint32),
        ("enforced_mw", c_uint32),
        ("out_of_band_mw", c_uint32),
        ("ignores_limit", c_uint32),
        ("lock_mhz", c_uint32),
        ("throttle_mhz", c_uint32),
        ("throttle_reasons", c_uint32),
        ("persistence", c_uint32),
        # What the board has.
        ("has_ecc", c_uint32),
        ("has_mig", c_uint32),
        ("mig_on", c_uint32),
        ("is_module", c_uint32),
        ("module_w", c_double),
        ("memory_share", c_double),
        ("usage_is_average", c_uint32),
        ("remapped_correctable", c_uint32),
        ("remapped_uncorrectable", c_uint32),
        ("remap_is_pending", c_uint32),
        ("remap_failed", c_uint32),
        ("ecc_corrected", c_uint64),
        ("ecc_uncorrected", c_uint64),
        # Readings.
        ("counter", Sensor),
        ("instant", Sensor),
        ("average", Sensor),
        ("counter_quantum_mj", c_uint64),
        ("power_frozen_ns", c_int64),
        ("counter_frozen_ns", c_int64),
        ("latency_ns", c_int64),
        ("field_codes", c_uint16 * N_FIELDS),
        ("n_resets", c_uint32),
        ("reset_ns", c_int64 * MAX_RESETS),
        ("reset_j", c_double * MAX_RESETS),  # the sum of energy then
        # A counter that sees part of the time: its sum so far, up to the update at `seen_ns`.
        ("seen_ns", c_int64),
        ("seen_j", c_double),
        ("n_processes", c_uint32),
        ("processes", ListedProcess * MAX_PROCESSES),
        ("load_pid", c_uint32),
        ("n_stretches", c_uint32),
        ("stretches", Stretch * MAX_STRETCHES),
    ]


class State(Structure):
    """The whole file."""

    _fields_ = [
        ("mutex", c_uint64 * (MUTEX_BYTES // 8)),
        ("n_gpus", c_uint32),
        ("init_code", c_uint32),
        ("only_root_controls", c_uint32),
        ("unloads_unused", c_uint32),
        ("stamps_updates", c_uint32),
        ("cuda_version", c_int32),
        ("held_ns", c_int64),  # not 0: time stands still there
        ("driver_version", c_char * 80),
        ("nvml_version", c_char * 80),
        ("clients", c_uint32 * MAX_CLIENTS),
        ("n_rules", c_uint32),
        ("rules", Rule * MAX_RULES),
        ("gpus", Gpu * MAX_GPUS),
    ]


_C_NAMES: dict[Any, str] = {
    c_char: "char",
    c_double: "double",
    c_int32: "int32_t",
    c_int64: "int64_t",
    c_uint16: "uint16_t",
    c_uint32: "uint32_t",
    c_uint64: "uint64_t",
}


def c_header() -> str:
    """The same layout for C, with a check that both sides agree on its size."""
    lines = ["#pragma once", "#include <assert.h>", "#include <stdint.h>"]
    for name in ("MAX_GPUS", "MAX_STRETCHES", "MAX_PROCESSES", "MAX_RESETS", "MAX_CLIENTS", "MAX_RULES", "N_FIELDS"):
        lines.append(f"#define {name} {globals()[name]}")
    lines += [f'#define STATE_VARIABLE "{STATE_VARIABLE}"', f'#define PRIVILEGED_VARIABLE "{PRIVILEGED_VARIABLE}"']
    for structure in (Stretch, Sensor, ListedProcess, Rule, Gpu, State):
        lines += ["typedef struct {", *map(_c_field, structure._fields_), f"}} {structure.__name__};"]
        size = ctypes.sizeof(structure)
        lines.append(f'static_assert(sizeof({structure.__name__}) == {size}, "as in nvml_state.py");')
    return "\n".join(lines) + "\n"


def _c_field(field: tuple[Any, ...]) -> str:
    name, kind = field
    if issubclass(kind, ctypes.Array):
        return f"    {_C_NAMES.get(kind._type_, kind._type_.__name__)} {name}[{kind._length_}];"
    return f"    {_C_NAMES.get(kind, kind.__name__)} {name};"
