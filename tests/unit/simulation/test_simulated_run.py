"""Whole simulated runs: known truth, known flags, the same bytes again."""

from pathlib import Path

import pytest

from ecobench.errors import RequestError
from ecobench.measurement import Boundary, Evidence
from ecobench.records import TrialStatus
from ecobench.simulation.forecast import forecast
from ecobench.simulation.rig import GAIN, GAIN_SPREAD
from ecobench.simulation.script import WorkloadFault
from ecobench.simulation.sensor import SensorFault
from ecobench.windows import trial_windows
from simulated_runs import SimulatedRun, simulate

# Steps of 98 ms for 65 s, no validation.
SHORT = {"preset": "speedrun-short", "settings": ("ranks=8", "steps=660")}


def short(home: Path, **changes: object) -> SimulatedRun:
    return simulate(home, **{**SHORT, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def record_run(tmp_path_factory: pytest.TempPathFactory) -> SimulatedRun:
    return simulate(tmp_path_factory.mktemp("store"))


def test_the_record_is_met(record_run: SimulatedRun) -> None:
    """Record 26: 688.1 M tokens in 171.7 s, at 4.01 M tokens/s: within 2 %; the loss at its 3.279 within 4 spreads."""
    result = record_run.trials[0].result
    assert result is not None

    assert result.n_steps == 1750
    assert result.n_tokens == 688_128_000
    assert result.duration_s == pytest.approx(171.7, rel=0.02)
    assert result.final_metrics[0].value == pytest.approx(3.279, abs=4 * 0.0013)


def test_it_is_valid_and_says_sim(record_run: SimulatedRun) -> None:
    assert record_run.summary.is_valid
    assert {one.evidence for one in record_run.summary.figures if one.boundary} == {Evidence.SIM}
    assert record_run.spec.simulation == "8xh100, seed 0"


def test_measured_energy_is_the_truth_times_the_gain(record_run: SimulatedRun) -> None:
    """14 segments: the counter's answer divided by the board's true energy is the sensor's gain, within 0.15 %."""
    rig, folder = record_run.rig, record_run.folder
    record = record_run.trials[0]
    assert record.end is not None
    assert record.result is not None
    times = record.end.times
    windows = trial_windows(folder.trial(0).read_transcripts(), launch_ns=times.launch_ns, exit_ns=times.exit_ns)
    window = windows.window("train")
    assert window is not None
    train = next(one for one in record.result.phases if one.phase == "train")

    assert len(window.segments) == 14
    for index in range(8):
        true_j = sum(rig.true_energy_j(index, one.start_ns, one.stop_ns) for one in window.segments)
        found = next(one for one in train.domains if one.domain == f"gpu:{index}")
        assert found.method == "counter"
        assert found.energy_j == pytest.approx(true_j * rig.gain(index), rel=0.0015)
        assert abs(rig.gain(index) - GAIN) <= 2.5 * GAIN_SPREAD + 1e-9


def test_a_plan_is_what_the_run_then_takes(record_run: SimulatedRun) -> None:
    """The forecast of the same node: the first trial's time to the rounding of steps, its true energy by the gains."""
    (row,) = forecast(record_run.rig.node, record_run.spec, limits=("100%",), sm_clock=None, seed=0, price_per_kwh=2.0)
    result = record_run.trials[0].result
    assert result is not None
    train = next(one for one in result.phases if one.phase == "train")
    measured_j = sum(
        one.energy_j / record_run.rig.gain(int(one.domain.removeprefix("gpu:")))
        for one in train.domains
        if one.energy_j is not None and one.domain.startswith("gpu:")
    )

    assert row.train_s == pytest.approx(result.duration_s, rel=1e-9)
    assert row.train_gpu_j == pytest.approx(measured_j, rel=0.0015)
    assert row.n_tokens == result.n_tokens
    assert row.node_kwh is not None
    assert row.cost == pytest.approx(2 * row.node_kwh)


def test_node_power_is_that_of_a_loaded_node(record_run: SimulatedRun) -> None:
    power = next(
        one for one in record_run.summary.figures if one.key == "mean_power_w" and one.boundary is Boundary.NODE
    )
    assert power.value is not None

    assert 6500 < power.value < 7300


def test_a_power_limit_is_set_read_back_and_binds(tmp_path: Path) -> None:
    run = short(tmp_path, power_limit="70%")
    record = run.trials[0]
    assert record.end is not None
    assert record.result is not None

    assert [one.during.requested_w for one in record.end.controls if one.during] == [490.0] * 8
    assert [one.after.requested_w for one in record.end.controls if one.after] == [700.0] * 8
    assert all(one.cap_share is not None and one.cap_share > 0.9 for one in record.result.gpus)
    gpu = next(one for one in record.result.boundaries if one.boundary is Boundary.GPU)
    assert gpu.energy_j is not None
    assert record.result.duration_s is not None
    assert gpu.energy_j / record.result.duration_s < 8 * 490 * 1.01


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    """Events and samples alike; another seed differs."""
    first, again, other = (short(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))

    def content(run: SimulatedRun) -> list[bytes]:
        trial = run.folder.trial(0)
        return [trial.samples.read_bytes(), *(path.read_bytes() for path in trial.rank_files())]

    assert content(first) == content(again)
    assert content(first) != content(other)


def test_trials_of_a_run_differ(tmp_path: Path) -> None:
    run = short(tmp_path, n_trials=2)

    assert len({trial.result.duration_s for trial in run.trials if trial.result}) == 2


def test_a_stop_rule_is_heeded_where_it_is_reached(tmp_path: Path) -> None:
    """Asked at the first look after step 100, it ends with the step that runs then."""
    record = short(tmp_path, until="steps=100").trials[0]
    assert record.result is not None

    assert record.status is TrialStatus.STOPPED
    assert record.result.n_steps is not None
    assert 100 <= record.result.n_steps <= 102


def test_one_h100_takes_nearly_eight_times_as_long(tmp_path: Path) -> None:
    """Published: 94.8 to 95.5 % of 8 times; an extrapolation for this recipe, held to 10 %."""
    one = simulate(tmp_path, node="1xh100", preset="speedrun-short", settings=("ranks=1", "steps=100")).trials[0]
    assert one.result is not None
    assert one.result.duration_s is not None

    assert one.result.duration_s / 100 == pytest.approx(8 * 0.95 * 0.098, rel=0.1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("zero_init=off",), "`zero_init=off` has no stated simulated effect"),
        (("attention=full",), "`attention=full` has no stated simulated effect"),
        (("sequence_length=512",), "sequence_length=512"),
        (("ranks=16",), "16 ranks on 8 simulated"),
    ],
)
def test_what_has_no_stated_effect_is_refused(tmp_path: Path, settings: tuple[str, ...], says: str) -> None:
    with pytest.raises(RequestError) as caught:
        simulate(tmp_path, settings=settings)
    assert says in caught.value.message


def test_a_node_without_the_load_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no load `speedrun`"):
        simulate(tmp_path, node="v100", settings=("ranks=1",))


@pytest.mark.parametrize(
    ("sensor_faults", "fault", "code"),
    [
        ({"gpu:3 energy_counter": SensorFault(dies_at_s=120)}, WorkloadFault(), "failed_readings"),
        ({"gpu:3 energy_counter": SensorFault(resets_at_s=120)}, WorkloadFault(), "counter_reset"),
        ({"gpu:3 instant_power": SensorFault(freezes_at_s=100)}, WorkloadFault(), "frozen_sensor"),
        ({"gpu:3 energy_counter": SensorFault(silent_from_s=110, silent_s=5)}, WorkloadFault(), "sample_gap"),
        ({}, WorkloadFault(throttles_at_s=110), "throttled"),
        ({}, WorkloadFault(crashes_at_s=120, crashing_rank=3), "failed"),
        ({}, WorkloadFault(open_phase="train"), "unfinished_phase"),
    ],
    ids=["dies", "wraps", "freezes", "gap", "throttles", "crashes", "never stops"],
)
def test_each_fault_raises_its_flag(
    tmp_path: Path, sensor_faults: dict[str, SensorFault], fault: WorkloadFault, code: str
) -> None:
    assert code in short(tmp_path, sensor_faults=sensor_faults, fault=fault).flags()


def test_without_a_fault_none_of_these_flags_is_raised(tmp_path: Path) -> None:
    found = short(tmp_path).flags()

    assert not found & {"failed_readings", "counter_reset", "frozen_sensor", "sample_gap", "failed", "unfinished_phase"}
