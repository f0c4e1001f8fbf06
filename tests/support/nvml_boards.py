"""Boards in the shared state of an NVML test bed: how one gets there, and what its history means in closed form."""

from typing import Any

from nvml_models import MS, GpuModel, pci_bus_of, uuid_of
from nvml_state import N_FIELDS, Sensor, Stretch
from nvml_truth import GpuTruth, Piece, SensorTruth

NOT_SUPPORTED = 3


def install(gpu: Any, model: GpuModel, slot: int, start_ns: int) -> None:
    """Put a board of a kind into a slot, idle since `start_ns`; its counter is not yet reset."""
    bus = pci_bus_of(slot)
    gpu.name, gpu.uuid, gpu.vbios = model.name.encode(), uuid_of(slot).encode(), b"96.00.74.00.01"
    gpu.serial = f"165032300{slot:04d}".encode() if model.has_serial else b""
    gpu.bus_id = f"00000000:{bus:02X}:00.0".encode()
    gpu.pci_bus, gpu.pci_device_id, gpu.minor = bus, model.pci_device_id, slot
    gpu.architecture, gpu.brand = model.architecture, model.brand
    gpu.cuda_major, gpu.cuda_minor = model.capability
    gpu.memory_bytes, gpu.memory_used_bytes = model.memory_bytes, 0
    gpu.idle_w, gpu.ambient_c, gpu.c_per_w = model.idle_w, 28, model.c_per_w
    gpu.lowest_mhz, gpu.highest_mhz, gpu.step_mhz = model.lowest_mhz, model.highest_mhz, 15
    gpu.idle_mhz, gpu.memory_mhz = 345, model.memory_mhz
    gpu.min_mw, gpu.default_mw, gpu.max_mw = (
        round(limit_w * 1e3) for limit_w in (model.min_w, model.default_w, model.max_w)
    )
    gpu.requested_mw = gpu.default_mw
    gpu.persistence = 1
    gpu.has_ecc, gpu.has_mig = model.has_ecc, model.has_mig
    gpu.is_module, gpu.module_w = model.module_w is not None, model.module_w or 0
    gpu.memory_share, gpu.usage_is_average = model.memory_share, model.usage_is_average
    gpu.counter_quantum_mj = 1
    # Boards do not update together.
    phase_ns = 7 * slot * MS
    gpu.counter = Sensor(round(model.counter_period_ms * MS), phase_ns, 0, 1.0, 0.0)
    gpu.instant = Sensor(round(model.period_ms * MS), phase_ns, round(model.window_ms * MS), 1.0, 0.0)
    gpu.average = Sensor(100 * MS, phase_ns, 1000 * MS, 1.0, 0.0)
    for field in range(N_FIELDS):
        gpu.field_codes[field] = 0 if field in model.fields else NOT_SUPPORTED
    gpu.n_stretches = 1
    gpu.stretches[0] = Stretch(start_ns=start_ns, origin_ns=start_ns, high_w=model.idle_w, low_w=model.idle_w)


def truth_of(gpu: Any) -> GpuTruth:
    stretches = gpu.stretches[: gpu.n_stretches]
    stops_ns = [stretch.start_ns for stretch in stretches[1:]] + [None]
    return GpuTruth(
        pieces=tuple(_piece(gpu, stretch, stop_ns) for stretch, stop_ns in zip(stretches, stops_ns, strict=True)),
        counter=_sensor(gpu.counter),
        instant=_sensor(gpu.instant),
        average=_sensor(gpu.average),
        quantum_mj=gpu.counter_quantum_mj,
        resets_ns=tuple(gpu.reset_ns[: gpu.n_resets]),
        module_w=gpu.module_w,
        ambient_c=gpu.ambient_c,
        c_per_w=gpu.c_per_w,
    )


def _sensor(sensor: Any) -> SensorTruth:
    return SensorTruth(
        period_ns=sensor.period_ns,
        phase_ns=sensor.phase_ns,
        window_ns=sensor.window_ns,
        gain=sensor.gain,
        offset_w=sensor.offset_w,
    )


def _piece(gpu: Any, stretch: Any, stop_ns: int | None) -> Piece:
    moments = [_settle(gpu, stretch, demand_w) for demand_w in (stretch.high_w, stretch.low_w)]
    powers_w, clocks_mhz, cap_binds, is_busy = zip(*moments, strict=True)
    return Piece(
        start_ns=stretch.start_ns,
        stop_ns=stop_ns,
        origin_ns=stretch.origin_ns,
        period_ns=stretch.period_ns,
        high_ns=stretch.high_ns,
        powers_w=powers_w,
        clocks_mhz=clocks_mhz,
        cap_binds=cap_binds,
        is_busy=is_busy,
    )


def _settle(gpu: Any, stretch: Any, demand_w: float) -> tuple[float, float, bool, bool]:
    """The law of power: above idle with the cube of the clock; a limit brings the clock down until it is met."""
    if demand_w <= gpu.idle_w:
        return demand_w, float(stretch.highest_mhz), False, False
    share = stretch.highest_mhz / gpu.highest_mhz
    power_w = gpu.idle_w + (demand_w - gpu.idle_w) * share**3
    if power_w <= stretch.enforced_w:
        return power_w, float(stretch.highest_mhz), False, True
    share = (max(0.0, stretch.enforced_w - gpu.idle_w) / (demand_w - gpu.idle_w)) ** (1 / 3)
    return stretch.enforced_w, gpu.highest_mhz * share, True, True
