"""The faults of the NVML test bed: each is what the bindings would say of a real driver's."""

import threading
from collections.abc import Callable

import pynvml
import pytest

from nvml_bed import DRIVER_MISMATCH, DRIVER_NOT_LOADED, UNKNOWN, NvmlBed
from nvml_build import NvmlLibrary
from nvml_calls import counter_mj, field, handle, run_python, set_limit
from nvml_models import H100, MS, OLD_DRIVER_LACKS_FIELDS

SECOND_NS = 1000 * MS

MakeBed = Callable[..., NvmlBed]


def remove_counter(bed: NvmlBed) -> None:
    bed.remove_counter(0)


@pytest.mark.parametrize(
    ("break_it", "call", "expected"),
    [
        (lambda bed: bed.only_root_controls(), set_limit, pynvml.NVMLError_NoPermission),
        (
            lambda bed: bed.only_root_controls(),
            lambda: pynvml.nvmlDeviceSetGpuLockedClocks(handle(), 210, 990),
            pynvml.NVMLError_NoPermission,
        ),
        (
            lambda bed: bed.only_root_controls(),
            lambda: pynvml.nvmlDeviceSetPersistenceMode(handle(), 0),
            pynvml.NVMLError_NoPermission,
        ),
        (lambda bed: bed.fail("nvmlDeviceSetPowerManagementLimit", 3), set_limit, pynvml.NVMLError_NotSupported),
        (lambda _: None, lambda: set_limit(199_000), pynvml.NVMLError_InvalidArgument),
        (lambda _: None, lambda: set_limit(701_000), pynvml.NVMLError_InvalidArgument),
        (remove_counter, counter_mj, pynvml.NVMLError_NotSupported),
        (remove_counter, lambda: field(83), pynvml.NVMLError_NotSupported),
        (lambda bed: bed.remove_power(0), lambda: field(186), pynvml.NVMLError_NotSupported),
        (
            lambda bed: bed.remove_power(0),
            lambda: pynvml.nvmlDeviceGetPowerUsage(handle()),
            pynvml.NVMLError_NotSupported,
        ),
        (lambda bed: bed.lose(0), handle, pynvml.NVMLError_GpuIsLost),
        (lambda bed: bed.fail("*", UNKNOWN), pynvml.nvmlDeviceGetCount, pynvml.NVMLError_Unknown),
        (lambda bed: bed.fail_init(DRIVER_MISMATCH), pynvml.nvmlInit, pynvml.NVMLError_LibRmVersionMismatch),
        (lambda bed: bed.fail_init(UNKNOWN), pynvml.nvmlInit, pynvml.NVMLError_Unknown),
        (lambda bed: bed.fail_init(DRIVER_NOT_LOADED), pynvml.nvmlInit, pynvml.NVMLError_DriverNotLoaded),
        (lambda _: None, lambda: handle(1), pynvml.NVMLError_InvalidArgument),
        (lambda _: None, lambda: pynvml.nvmlDeviceGetHandleByUUID("GPU-none"), pynvml.NVMLError_NotFound),
        (lambda _: pynvml.nvmlShutdown(), pynvml.nvmlDeviceGetCount, pynvml.NVMLError_Uninitialized),
        (
            lambda bed: bed.set_mig(0),
            lambda: pynvml.nvmlDeviceGetUtilizationRates(handle()),
            pynvml.NVMLError_NotSupported,
        ),
    ],
)
def test_fault_is_the_exception_that_a_driver_would_give(
    h100: NvmlBed, break_it: Callable[[NvmlBed], None], call: Callable[[], object], expected: type[Exception]
) -> None:
    """Each fault by its NVML code, through the bindings as they are."""
    break_it(h100)

    with pytest.raises(pynvml.NVMLError) as caught:
        call()
    assert caught.type is expected
    assert h100.limits_w(0) == (700, 700)


def test_lost_gpu_is_lost_alone(make_bed: MakeBed) -> None:
    """A handle from before is of no use, the neighbour answers, and `heal` brings it back."""
    bed = make_bed(H100, H100)
    pynvml.nvmlInit()
    first, second = handle(0), handle(1)
    bed.lose(0)

    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetFieldValues(first, [186])
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(second) > 0

    bed.heal()
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(first) > 0


def test_only_a_privileged_process_may_set_where_root_is_asked_for(h100: NvmlBed) -> None:
    """A daemon of root's beside us may what we may not."""
    h100.only_root_controls()
    program = """
pynvml.nvmlInit()
try:
    pynvml.nvmlDeviceSetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(0), 400_000)
    print(0)
except pynvml.NVMLError as error:
    print(error.value)
"""
    assert run_python(h100, program) == pynvml.NVML_ERROR_NO_PERMISSION
    assert run_python(h100, program, h100.privileged_environment) == 0
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle()) == 400_000


def test_counter_reset_starts_again_from_zero(h100: NvmlBed) -> None:
    """The difference over it is negative; afterwards it counts as before."""
    h100.set_load(0, 300)
    before_mj = counter_mj()
    h100.reset_counter(0)
    assert counter_mj() < before_mj

    h100.advance(2 * SECOND_NS)
    assert counter_mj() == pytest.approx(600_000, abs=1)
    assert counter_mj() == pytest.approx(h100.truth(0).counter_mj(h100.now_ns), abs=1)


def test_frozen_power_says_what_it_said_while_the_counter_goes_on(h100: NvmlBed) -> None:
    """The board went from 300 to 600 W."""
    h100.set_load(0, 300)
    h100.advance(2 * SECOND_NS)
    h100.freeze_power(0)
    before_mj = counter_mj()
    h100.set_load(0, 600)
    h100.advance(2 * SECOND_NS)

    assert field(186) == field(185) == 300_000
    assert counter_mj() - before_mj == pytest.approx(1_200_000, abs=1)

    h100.freeze_counter(0)
    h100.advance(2 * SECOND_NS)
    assert counter_mj() - before_mj == pytest.approx(1_200_000, abs=1)


def test_limit_may_be_ignored_overruled_or_changed_by_others(h100: NvmlBed) -> None:
    """Requested and enforced part, and come together again."""
    h100.ignore_limits(0)
    set_limit(400_000)
    assert (field(192), field(190)) == (400_000, 700_000)

    h100.ignore_limits(0, is_on=False)
    assert (field(192), field(190)) == (400_000, 400_000)

    h100.set_out_of_band_limit(0, 350)
    assert (field(192), field(190)) == (400_000, 350_000)

    h100.set_out_of_band_limit(0, None)
    h100.set_limit(0, 650)
    assert (field(192), field(190)) == (650_000, 650_000)


def test_driver_without_persistence_forgets_when_its_last_user_leaves(make_bed: MakeBed) -> None:
    """Limit, lock and counter of GPU 0 are gone, those of GPU 1, whose persistence is on, are not."""
    bed = make_bed(H100, H100)
    bed.unload_when_unused()
    bed.set_persistence(0, is_on=False)
    pynvml.nvmlInit()
    for gpu in range(2):
        pynvml.nvmlDeviceSetPowerManagementLimit(handle(gpu), 500_000)
        pynvml.nvmlDeviceSetGpuLockedClocks(handle(gpu), 210, 1200)
    assert run_python(bed, "pynvml.nvmlInit(); pynvml.nvmlShutdown(); print(bed.limits_w(0)[0])") == 500  # we are left

    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert [bed.limits_w(gpu) for gpu in range(2)] == [(700, 700), (500, 500)]
    assert [bed.lock_mhz(gpu) for gpu in range(2)] == [None, 1200]
    assert (counter_mj(0), counter_mj(1) > 0) == (0, True)


def test_slices_are_named_and_not_metered(h100: NvmlBed) -> None:
    """MIG ids find slices, slices their board; power is the board's alone."""
    h100.set_mig(0)
    assert pynvml.nvmlDeviceGetMigMode(handle()) == [1, 1]
    one = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(), 2)
    uuid = pynvml.nvmlDeviceGetUUID(one)

    assert uuid.startswith("MIG-")
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == uuid
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(one)) == 0
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetTotalEnergyConsumption(one)


def test_foreign_processes_are_listed(h100: NvmlBed) -> None:
    """By pid, with what they hold; one that tells nothing of its memory has None."""
    h100.list_processes(0, {4242: 3 << 30, 4243: (1 << 64) - 1})
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle())

    assert [(process.pid, process.usedGpuMemory) for process in found] == [(4242, 3 << 30), (4243, None)]


def test_old_driver_has_neither_later_functions_nor_fields(make_bed: MakeBed, old_nvml_library: NvmlLibrary) -> None:
    """FUNCTION_NOT_FOUND for a symbol that is not there, NOT_SUPPORTED for a field; old ways still work."""
    bed = make_bed(H100, library=old_nvml_library)
    bed.lack_fields(OLD_DRIVER_LACKS_FIELDS)
    pynvml.nvmlInit()

    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetTemperatureV(handle(), 0)
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle())
    with pytest.raises(pynvml.NVMLError_NotSupported):
        field(186)
    assert pynvml.nvmlDeviceGetTemperature(handle(), 0) == 32
    assert pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle()) == 1
    assert pynvml.nvmlDeviceGetPowerUsage(handle()) == 72_000


def test_slow_board_holds_up_nobody_else(make_bed: MakeBed) -> None:
    """While one call hangs in a board, another board and the bed's own changes go through."""
    bed = make_bed(H100, H100)
    pynvml.nvmlInit()
    slow = handle(0)
    bed.set_latency(0, 300 * MS)
    thread = threading.Thread(target=pynvml.nvmlDeviceGetTotalEnergyConsumption, args=(slow,))
    thread.start()
    bed.set_load(1, 500)
    counter_mj(1)
    was_still_in_call = thread.is_alive()
    thread.join()

    assert was_still_in_call
