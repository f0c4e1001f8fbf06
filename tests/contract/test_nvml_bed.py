"""The NVML test bed itself: unmodified nvidia-ml-py and zeus read on it what its closed forms say.

Time stands still in most of these tests and is moved by hand, so that readings are exact and nothing waits.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pynvml
import pytest

from nvml_bed import NvmlBed
from nvml_build import known_functions
from nvml_calls import counter_mj, field, handle, run_python, set_limit
from nvml_models import A40, A100, GH200, H100, H200, MODELS, MS, P100, RTX4090, V100, GpuModel

SECOND_NS = 1000 * MS

MakeBed = Callable[..., NvmlBed]


# ---- readings against the truth ----


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_each_generation_reads_what_the_truth_says(make_bed: MakeBed, model: GpuModel) -> None:
    """Power to 1 mW and the counter to 1 mJ, at odd instants under a wave that the limit cuts."""
    bed = make_bed(model)
    pynvml.nvmlInit()
    bed.set_sensor(0, "instant", gain=0.95, offset_w=-1.2)
    bed.set_sensor(0, "average", gain=0.97)
    bed.set_sensor(0, "counter", gain=1.01, offset_w=0.5)
    bed.set_square_wave(0, high_w=1.3 * model.max_w, low_w=model.idle_w, period_ns=73 * MS, duty_share=0.4)
    usage = "average_mw" if model.usage_is_average else "instant_mw"
    for _ in range(60):
        now_ns = bed.advance(37 * MS + 1)
        truth = bed.truth(0)

        assert field(186) == pytest.approx(truth.instant_mw(now_ns), abs=1)
        assert pynvml.nvmlDeviceGetPowerUsage(handle()) == pytest.approx(getattr(truth, usage)(now_ns), abs=1)
        if 185 in model.fields:
            assert field(185) == pytest.approx(truth.average_mw(now_ns), abs=1)
        if 83 in model.fields:
            assert counter_mj() == pytest.approx(truth.counter_mj(now_ns), abs=1)
            assert field(83) == field(191) == counter_mj()


def test_650_watts_for_10_seconds_are_6500_joules(h100: NvmlBed) -> None:
    """By hand, on updates of the counter: 650 W x 10 s."""
    before_mj = counter_mj()
    start_ns = h100.now_ns
    h100.set_load(0, 650)
    h100.advance(10 * SECOND_NS)

    assert counter_mj() - before_mj == pytest.approx(6_500_000, abs=1)
    assert h100.truth(0).energy_j(start_ns, h100.now_ns) == pytest.approx(6500)


def test_counter_moves_at_updates_and_in_quanta_only(h100: NvmlBed) -> None:
    """Over any number of updates it is the integral to within a quantum; between updates it stands."""
    h100.set_counter_quantum(0, 1000)
    h100.set_square_wave(0, high_w=680, low_w=100, period_ns=98_080_000, duty_share=0.8)
    start_ns, start_mj = h100.now_ns, counter_mj()
    for n_updates in range(1, 100):
        h100.advance(99 * MS)
        assert counter_mj() % 1000 == 0
        before_update_mj = counter_mj()
        h100.advance(1 * MS)
        true_mj = h100.truth(0).energy_j(start_ns, h100.now_ns) * 1e3

        assert counter_mj() - start_mj == pytest.approx(true_mj, abs=1000)
        assert n_updates == 1 or counter_mj() > before_update_mj


def test_instant_sensor_takes_a_load_of_its_own_period_for_a_constant(h100: NvmlBed) -> None:
    """25 ms of each 100 ms: half the time at 600 W reads 600, 100, or in between by phase, whatever the length."""
    read_w = []
    for shift_ms in (0, 25, 37.5, 50, 75):
        h100.set_square_wave(0, high_w=600, low_w=100, period_ns=100 * MS, origin_ns=round(shift_ms * MS))
        h100.advance(100 * MS)
        powers_w = set()
        for _ in range(128):
            h100.advance(100 * MS)
            powers_w.add(field(186) / 1e3)
        (power_w,) = powers_w
        read_w.append(power_w)

    # The window is the last 25 ms before an update; the load is high for 50 ms from the shift on.
    assert read_w == [100, 100, 350, 600, 600]


def test_steps_of_98_ms_beat_with_the_sensor_every_5_seconds(h100: NvmlBed) -> None:
    """98.08 ms against 100 ms: the reading comes round after 98.08 / 1.92 = 51.1 updates."""
    h100.set_square_wave(0, high_w=600, low_w=100, period_ns=98_080_000)
    h100.advance(2 * SECOND_NS)
    powers_w = []
    for _ in range(512):
        h100.advance(100 * MS)
        powers_w.append(field(186) / 1e3)
    rises = [i for i in range(1, 512) if powers_w[i - 1] < 350 <= powers_w[i]]

    assert (rises[-1] - rises[0]) / (len(rises) - 1) == pytest.approx(98.08 / 1.92, rel=0.02)
    assert sum(powers_w[:511]) / 511 == pytest.approx(350, rel=0.01)  # ten whole beats


def test_average_lags_a_step_by_a_second(h100: NvmlBed) -> None:
    """Half a second after 72 W became 672 W it reads half of the way; after a second all of it."""
    h100.set_load(0, 672)
    h100.advance(500 * MS)

    assert pynvml.nvmlDeviceGetPowerUsage(handle()) == field(185) == 372_000
    assert field(186) == 672_000

    h100.advance(500 * MS)
    assert field(185) == 672_000


def test_counter_may_see_a_quarter_of_the_time(h100: NvmlBed) -> None:
    """What calibration has to find out: a load in phase with such a counter is counted at its peak all of the time."""
    h100.set_sensor(0, "counter", window_ns=25 * MS)
    h100.set_square_wave(0, high_w=600, low_w=100, period_ns=100 * MS, origin_ns=h100.now_ns + 50 * MS)
    h100.advance(100 * MS)
    before_mj = counter_mj()
    now_ns = h100.advance(10 * SECOND_NS)

    assert counter_mj() - before_mj == pytest.approx(6_000_000, abs=1)
    assert counter_mj() == pytest.approx(h100.truth(0).counter_mj(now_ns), abs=1)


def test_time_runs_when_it_is_not_held(h100: NvmlBed) -> None:
    """A reading lies between the truths just before and just after it, on the monotonic clock."""
    h100.release()
    h100.set_load(0, 500)
    truth = h100.truth(0)
    for _ in range(200):
        before_ns = h100.now_ns
        read_mj = counter_mj()

        assert truth.counter_mj(before_ns) - 1 <= read_mj <= truth.counter_mj(h100.now_ns) + 1


def test_schedule_keeps_its_steps_when_a_limit_comes_in_between(h100: NvmlBed) -> None:
    """2 s of 600 W and 2 s of 300 W, capped at 400 W after 1 s: 600 + 400 + 2 x 300 J."""
    start_ns = h100.now_ns
    h100.set_steps(0, [(2 * SECOND_NS, 600), (2 * SECOND_NS, 300)])
    h100.advance(1 * SECOND_NS)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle(), 400_000)
    h100.advance(3 * SECOND_NS)

    assert h100.truth(0).energy_j(start_ns, h100.now_ns) == pytest.approx(1600)
    assert h100.truth(0).power_w(h100.now_ns) == H100.idle_w


def test_history_longer_than_its_place_keeps_its_sums(h100: NvmlBed) -> None:
    """20,000 loads of 1 ms: the older half goes, the counter does not notice."""
    before_mj = counter_mj()
    for index in range(20_000):
        h100.set_load(0, 200 + 100 * (index % 2))
        h100.advance(1 * MS)

    assert counter_mj() - before_mj == pytest.approx(20 * 250 * 1000, abs=1)


# ---- the cap ----


def test_limit_binds_brings_the_clock_down_and_is_counted(h100: NvmlBed) -> None:
    """578 W above idle cut to 428 W: clock x cube root of 0.7405; the power-cap counter runs while it binds."""
    pynvml.nvmlDeviceSetPowerManagementLimit(handle(), 500_000)
    before_ns = field(74)
    h100.set_square_wave(0, high_w=650, low_w=300, period_ns=1000 * MS, duty_share=0.25)
    h100.advance(8 * SECOND_NS + 100 * MS)

    assert field(74) - before_ns == 8 * 250 * MS + 100 * MS
    assert field(186) == 500_000
    # 1980 x (428 / 578) ** (1 / 3) = 1791.3, on a ladder of 15 MHz counted from 1980.
    assert pynvml.nvmlDeviceGetClockInfo(handle(), pynvml.NVML_CLOCK_SM) == 1785
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle()) == pynvml.nvmlClocksEventReasonSwPowerCap

    h100.advance(400 * MS)
    assert field(186) == 300_000
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle()) == 0


def test_locked_clock_costs_power_by_its_cube_and_no_cap_time(h100: NvmlBed) -> None:
    """At half of 1980 MHz an eighth of what is above idle is left."""
    pynvml.nvmlDeviceSetGpuLockedClocks(handle(), 210, 990)
    h100.set_load(0, 72 + 400)
    h100.advance(100 * MS)

    assert field(186) == 72_000 + 50_000
    assert pynvml.nvmlDeviceGetClockInfo(handle(), pynvml.NVML_CLOCK_SM) == 990
    assert field(74) == 0

    pynvml.nvmlDeviceResetGpuLockedClocks(handle())
    h100.advance(100 * MS)
    assert field(186) == 472_000


@pytest.mark.parametrize(
    ("reason", "counter", "bits"), [("sw_thermal", 269, 0x20), ("hw_thermal", 270, 0x48), ("brake", 271, 0x88)]
)
def test_throttling_is_seen_in_reason_counter_and_clock(h100: NvmlBed, reason: str, counter: int, bits: int) -> None:
    """One second of three, at 1,200 MHz."""
    h100.set_load(0, 400)
    h100.advance(1 * SECOND_NS)
    h100.throttle(0, reason, clock_mhz=1200)
    h100.advance(1 * SECOND_NS)

    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle()) == bits
    assert pynvml.nvmlDeviceGetClockInfo(handle(), pynvml.NVML_CLOCK_SM) == 1200

    h100.throttle(0, None)
    h100.advance(1 * SECOND_NS)
    assert field(counter) == 1 * SECOND_NS
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle()) == 0


# ---- what every board tells ----


def test_a_node_of_all_kinds_tells_who_they_are(make_bed: MakeBed) -> None:
    """Names, limits, architectures as NVML numbers them; PCI order is index order, UUID order is not."""
    bed = make_bed(*MODELS)
    pynvml.nvmlInit()
    handles = [handle(index) for index in range(pynvml.nvmlDeviceGetCount())]

    assert [pynvml.nvmlDeviceGetName(each) for each in handles] == [model.name for model in MODELS]
    assert [pynvml.nvmlDeviceGetPowerManagementLimitConstraints(each) for each in handles] == [
        [model.min_w * 1000, model.max_w * 1000] for model in MODELS
    ]
    assert [pynvml.nvmlDeviceGetPowerManagementDefaultLimit(each) for each in handles] == [
        model.default_w * 1000 for model in MODELS
    ]
    assert [pynvml.nvmlDeviceGetArchitecture(each) for each in handles] == [4, 5, 7, 7, 8, 9, 9, 9]
    assert pynvml.nvmlDeviceGetCudaComputeCapability(handles[4]) == (8, 9)
    buses = [pynvml.nvmlDeviceGetPciInfo(each).bus for each in handles]
    uuids = [pynvml.nvmlDeviceGetUUID(each) for each in handles]
    assert buses == sorted(buses)
    assert uuids == list(bed.uuids) != sorted(uuids)
    assert [pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)) for uuid in uuids] == list(range(8))
    bus_ids = [pynvml.nvmlDeviceGetPciInfo(each).busId for each in handles]
    assert [pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)) for bus_id in bus_ids] == list(
        range(8)
    )


def test_generations_differ_in_what_they_have(make_bed: MakeBed) -> None:
    """No average on GA100 and older, no counter before Volta, memory power on Hopper alone, a module only on Grace."""
    make_bed(P100, V100, A100, A40, RTX4090, H100, GH200)
    pynvml.nvmlInit()

    def works(call: Callable[..., object], *arguments: object, **options: int) -> bool:
        try:
            call(*arguments, **options)
        except pynvml.NVMLError_NotSupported:
            return False
        return True

    gpus = range(7)
    assert [works(field, 185, gpu=gpu) for gpu in gpus] == [False, False, False, True, True, True, True]
    assert [works(counter_mj, gpu) for gpu in gpus] == [False, True, True, True, True, True, True]
    assert [works(field, 185, gpu=gpu, scope=2) for gpu in gpus] == [False] * 5 + [True] * 2
    assert [works(field, 186, gpu=gpu, scope=1) for gpu in gpus] == [False] * 6 + [True]
    assert [works(pynvml.nvmlDeviceGetC2cModeInfoV, handle(gpu)) for gpu in gpus] == [False] * 6 + [True]
    assert [works(pynvml.nvmlDeviceGetMigMode, handle(gpu)) for gpu in gpus] == [False, False, True, False, False] + [
        True
    ] * 2
    assert [works(pynvml.nvmlDeviceGetEccMode, handle(gpu)) for gpu in gpus] == [True] * 4 + [False] + [True] * 2


def test_counter_of_a_module_includes_its_processor(make_bed: MakeBed) -> None:
    """GPU at 500 W and 120 W beside it, 10 s."""
    bed = make_bed(GH200)
    pynvml.nvmlInit()
    bed.set_load(0, 500)
    bed.advance(1 * SECOND_NS)
    before_mj = counter_mj()
    bed.advance(10 * SECOND_NS)

    assert counter_mj() - before_mj == pytest.approx(6_200_000, abs=1)
    assert (field(186), field(186, scope=1)) == (500_000, 620_000)


def test_load_shows_in_temperature_and_utilisation(h100: NvmlBed) -> None:
    """28 degC of ambience and 0.06 K/W; 40 % of the second is busy."""
    h100.set_square_wave(0, high_w=72 + 500, low_w=72, period_ns=100 * MS, duty_share=0.4)
    h100.advance(10 * SECOND_NS)

    assert pynvml.nvmlDeviceGetTemperatureV(handle(), 0) == round(28 + 0.06 * 272)
    assert pynvml.nvmlDeviceGetTemperature(handle(), 0) == field(82) - 8
    assert pynvml.nvmlDeviceGetUtilizationRates(handle()).gpu == 40


def test_memory_and_versions_fit_the_bindings(h100: NvmlBed) -> None:
    """Structures with a version word come back whole."""
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle(), version=pynvml.nvmlMemory_v2)

    assert memory.total == H100.memory_bytes == memory.free + memory.used + memory.reserved
    assert pynvml.nvmlDeviceGetMemoryInfo(handle()).total == H100.memory_bytes
    assert pynvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 13000
    assert pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle(), 2619)[:2] == [1980, 1965]


def test_every_function_of_the_bindings_is_there(h100: NvmlBed) -> None:
    """What the bed does not know says NOT_SUPPORTED, as a board that cannot; nothing is missing by accident."""
    missing = [name for name in known_functions() if not hasattr(pynvml.nvmlLib, name)]

    assert missing == []
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetFanSpeed(handle())


def test_field_values_may_carry_the_instant_of_their_update(h100: NvmlBed) -> None:
    """40 ms after an update the stamp is 40 ms older than that of a field without a sensor."""
    h100.advance(40 * MS)
    h100.stamp_updates()
    power, limit = pynvml.nvmlDeviceGetFieldValues(handle(), [186, 190])

    assert limit.timestamp - power.timestamp == 40_000


# ---- more than one process ----


def test_limit_set_by_a_child_is_seen_by_all(h100: NvmlBed) -> None:
    """One state: what the child sets is read back, enforced and drawn here, and the other way round."""
    h100.set_load(0, 650)
    program = """
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
pynvml.nvmlDeviceSetPowerManagementLimit(handle, 450_000)
print(json.dumps([pynvml.nvmlDeviceGetTotalEnergyConsumption(handle), bed.limits_w(0)]))
"""
    child_mj, child_limits_w = run_python(h100, program)

    assert child_limits_w == [450, 450]
    assert child_mj == counter_mj()
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle()) == 450_000
    assert field(190) == field(192) == pynvml.nvmlDeviceGetEnforcedPowerLimit(handle()) == 450_000
    h100.advance(100 * MS)
    assert field(186) == 450_000


def test_history_survives_many_writers(h100: NvmlBed) -> None:
    """Two children and we set limits against each other in running time; the sums are those of the history."""
    h100.release()
    h100.set_load(0, 690)
    program = """
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
for index in range(500):
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 300_000 + 1000 * (index % 300))
print(os.getpid())
"""
    children = [threading.Thread(target=run_python, args=(h100, program)) for _ in range(2)]
    for child in children:
        child.start()
    while any(child.is_alive() for child in children):
        set_limit(650_000)
        counter_mj()
        time.sleep(0.002)
    now_ns = h100.hold()

    assert counter_mj() == pytest.approx(h100.truth(0).counter_mj(now_ns), abs=1)
    assert field(74) == h100.truth(0).cap_ns(now_ns - 50 * SECOND_NS, now_ns)


def test_process_that_dies_with_the_lock_blocks_nobody(h100: NvmlBed) -> None:
    """SIGKILL at the worst instant: the next one takes over."""
    program = "bed._call('bed_lock'); print('null', flush=True); os.kill(os.getpid(), 9)"
    with pytest.raises(AssertionError):
        run_python(h100, program)

    assert counter_mj() > 0


def test_load_of_a_process_ends_with_it(h100: NvmlBed) -> None:
    """A killed workload leaves an idle board, and the list of processes."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    h100.set_load(0, 500, while_pid=child.pid)
    h100.list_processes(0, {child.pid: 1 << 30}, is_real=True)
    h100.advance(100 * MS)
    assert field(186) == 500_000
    assert [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle())] == [child.pid]

    child.send_signal(signal.SIGKILL)
    child.wait()
    counter_mj()
    h100.advance(100 * MS)
    assert field(186) == 72_000
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle()) == []


def test_zeus_window_is_the_difference_of_the_counters(make_bed: MakeBed) -> None:
    """Zeus as it is, in a child, on 8 GPUs: 10 s at 100 to 450 W; and a limit set through it is seen here."""
    bed = make_bed(*[H200] * 8)
    pynvml.nvmlInit()
    for gpu in range(8):
        bed.set_load(gpu, 100 + 50 * gpu)
    bed.advance(1 * SECOND_NS)
    before_mj = [counter_mj(gpu) for gpu in range(8)]
    program = """
from zeus.monitor import ZeusMonitor
from zeus.device import get_gpus
monitor = ZeusMonitor(gpu_indices=list(range(8)), cpu_indices=[])
monitor.begin_window("all", sync_execution=False)
bed.advance(10_000_000_000)
window = monitor.end_window("all", sync_execution=False)
gpu = get_gpus().gpus[3]
gpu.set_power_management_limit(400_000)
extra = [gpu.get_average_power_usage(), gpu.get_instant_power_usage(), gpu.get_gpu_temperature()]
print(json.dumps([list(window.gpu_energy.values()), extra]))
"""
    energies_j, (average_mw, instant_mw, temperature_c) = run_python(bed, program)

    assert energies_j == pytest.approx([(counter_mj(gpu) - before_mj[gpu]) / 1e3 for gpu in range(8)])
    assert energies_j == pytest.approx([1000 + 500 * gpu for gpu in range(8)], abs=0.002)
    assert (average_mw, instant_mw, temperature_c) == (250_000, 250_000, 43)
    assert bed.limits_w(3) == (400, 400)
