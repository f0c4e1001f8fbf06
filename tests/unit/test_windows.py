"""Windows from the ranks' phases, and the work done in a phase."""

import pytest

from ecobench.measurement import Segment, Window
from ecobench.transcript import Event, PhaseMark, Step, Transcript
from ecobench.windows import JOB, RankSkew, Work, count_work, trial_windows, trim_window


def start(time_ns: int, phase: str) -> PhaseMark:
    """A phase starts."""
    return PhaseMark(time_ns=time_ns, phase=phase, is_start=True)


def stop(time_ns: int, phase: str) -> PhaseMark:
    """A phase stops."""
    return PhaseMark(time_ns=time_ns, phase=phase, is_start=False)


def step(time_ns: int, index: int, n_tokens: int) -> Step:
    """A step is reported."""
    return Step(time_ns=time_ns, step=index, n_tokens=n_tokens, is_synced=False)


def said(*events: Event, rank: int = 0) -> Transcript:
    """A transcript of these events."""
    return Transcript(rank=rank, hello=None, events=events, goodbye=None, problems=(), n_problems=0, is_torn=False)


def window(phase: str, *edges: tuple[int, int]) -> Window:
    """A window of segments between nanoseconds."""
    return Window(phase=phase, segments=tuple(Segment(start_ns=first, stop_ns=last) for first, last in edges))


def test_a_program_without_phases_is_one_job() -> None:
    """From launch to exit."""
    found = trial_windows([said()], launch_ns=10, exit_ns=90)

    assert found.windows == (window(JOB, (10, 90)),)
    assert found.problems == ()


def test_nested_phases_are_taken_out_and_every_instant_is_owned_once() -> None:
    """Train with two evals inside, a checkpoint inside the second eval, idle around it."""
    found = trial_windows(
        [
            said(
                start(10, "train"),
                start(20, "eval"),
                stop(30, "eval"),
                start(50, "eval"),
                start(52, "checkpoint"),
                stop(55, "checkpoint"),
                stop(60, "eval"),
                stop(80, "train"),
            )
        ],
        launch_ns=0,
        exit_ns=100,
    )

    assert found.windows == (
        window(JOB, (0, 10), (80, 100)),
        window("train", (10, 20), (30, 50), (60, 80)),
        window("eval", (20, 30), (50, 52), (55, 60)),
        window("checkpoint", (52, 55)),
    )
    assert sum(each.duration_ns for each in found.windows) == 100
    assert found.window("eval") == found.windows[2]
    assert found.window("warmup") is None


def test_a_phase_runs_from_the_earliest_start_to_the_latest_stop_over_ranks() -> None:
    """Rank 1 starts train 2 later and stops it 5 later; it enters eval 1 earlier and leaves it 3 later."""
    found = trial_windows(
        [
            said(start(10, "train"), start(20, "eval"), stop(30, "eval"), stop(50, "train")),
            said(start(12, "train"), start(19, "eval"), stop(33, "eval"), stop(55, "train"), rank=1),
        ],
        launch_ns=0,
        exit_ns=60,
    )

    assert found.windows == (
        window(JOB, (0, 10), (55, 60)),
        window("train", (10, 19), (33, 55)),
        window("eval", (19, 33)),
    )
    assert found.skews == (
        RankSkew(phase="train", start_s=2e-9, stop_s=5e-9),
        RankSkew(phase="eval", start_s=1e-9, stop_s=3e-9),
    )
    assert found.problems == ()


def test_phases_side_by_side_do_not_share_time_where_ranks_are_apart() -> None:
    """Rank 1 is still in warmup while rank 0 already trains: the overlap stays with the earlier phase."""
    found = trial_windows(
        [
            said(start(10, "warmup"), stop(20, "warmup"), start(20, "train"), stop(40, "train")),
            said(start(10, "warmup"), stop(24, "warmup"), start(24, "train"), stop(40, "train"), rank=1),
        ],
        launch_ns=10,
        exit_ns=40,
    )

    assert found.windows == (window("warmup", (10, 24)), window("train", (24, 40)))


def test_a_phase_that_never_stopped_ends_with_the_trial_and_is_reported() -> None:
    """A crash inside eval inside train, seen from the exit and, where the exit is not known, the last event."""
    transcript = said(start(10, "train"), step(15, 1, 8), start(20, "eval"), step(26, 2, 16))

    with_exit = trial_windows([transcript], launch_ns=0, exit_ns=30)
    without_exit = trial_windows([transcript], launch_ns=0, exit_ns=None)

    assert with_exit.unfinished == ("train", "eval")
    assert with_exit.windows == (window(JOB, (0, 10)), window("train", (10, 20)), window("eval", (20, 30)))
    assert without_exit.windows == (window(JOB, (0, 10)), window("train", (10, 20)), window("eval", (20, 26)))


def test_ranks_that_tell_another_story_are_named() -> None:
    """Rank 1 has one eval less and never stops train; rank 2 says nothing."""
    found = trial_windows(
        [
            said(start(1, "train"), start(2, "eval"), stop(3, "eval"), stop(9, "train")),
            said(start(1, "train"), rank=1),
            said(rank=2),
        ],
        launch_ns=0,
        exit_ns=10,
    )

    assert found.problems == (
        "rank 1 started `eval` 0 times, rank 0 1 times",
        "rank 1 never stopped `train`, rank 0 did",
    )
    assert found.silent_ranks == (2,)
    assert found.unfinished == ()
    assert found.window("train") == window("train", (1, 2), (3, 9))


def test_phases_of_other_ranks_alone_define_nothing() -> None:
    """Rank 0 defines the phases."""
    found = trial_windows([said(start(1, "train"), stop(2, "train"), rank=1)], launch_ns=0, exit_ns=10)

    assert found.windows == (window(JOB, (0, 10)),)
    assert found.problems == ("rank 1 started `train` 1 times, rank 0 0 times",)


def test_phases_are_cut_at_launch_and_exit() -> None:
    """An event after the exit of the first process claims no energy that was not measured."""
    found = trial_windows([said(start(10, "train"), stop(99, "train"))], launch_ns=0, exit_ns=50)

    assert found.windows == (window(JOB, (0, 10)), window("train", (10, 50)))


def test_a_phase_without_duration_has_no_window() -> None:
    """Start and stop at one stamp."""
    found = trial_windows([said(start(10, "init"), stop(10, "init"))], launch_ns=0, exit_ns=50)

    assert found.windows == (window(JOB, (0, 50)),)


def test_two_transcripts_of_one_rank_are_a_mistake() -> None:
    """The caller reads one file a rank."""
    with pytest.raises(ValueError, match="one rank"):
        trial_windows([said(), said()], launch_ns=0, exit_ns=1)


def test_many_phases_are_painted_in_time() -> None:
    """20,000 alternating phases: 10,000 segments of 3 ns train, 10,000 of 1 ns data."""
    marks = [start(0, "train")]
    for at in range(0, 40_000, 4):
        marks += [start(at + 1, "data"), stop(at + 2, "data")]
    marks.append(stop(40_000, "train"))

    found = trial_windows([said(*marks)], launch_ns=0, exit_ns=40_000)

    assert {each.phase: each.duration_ns for each in found.windows} == {"train": 30_000, "data": 10_000}


def test_work_is_what_the_steps_inside_the_phase_add() -> None:
    """Warm-up takes steps 1 and 2 (20 tokens); two train instances add 2 + 1 steps and 30 + 15 tokens."""
    transcript = said(
        start(0, "warmup"),
        step(1, 1, 10),
        step(2, 2, 20),
        stop(3, "warmup"),
        start(4, "train"),
        step(5, 3, 35),
        step(6, 4, 50),
        stop(7, "train"),
        start(8, "train"),
        step(9, 5, 65),
        stop(10, "train"),
    )

    assert count_work(transcript, phase="train") == Work(n_steps=3, n_tokens=45)
    assert count_work(transcript, phase="warmup") == Work(n_steps=2, n_tokens=20)


def test_a_step_reported_inside_a_nested_eval_belongs_to_train() -> None:
    """Nothing trains in an eval: step 2 was taken before it and reported late."""
    transcript = said(
        start(0, "train"),
        step(1, 1, 10),
        start(2, "eval"),
        step(3, 2, 20),
        stop(4, "eval"),
        step(5, 3, 30),
        stop(6, "train"),
    )

    assert count_work(transcript, phase="train") == Work(n_steps=3, n_tokens=30)
    assert count_work(transcript, phase="eval") == Work(n_steps=1, n_tokens=10)


def test_steps_of_a_nested_warmup_are_not_train() -> None:
    """Its energy is taken out of train, and so is its work."""
    transcript = said(
        start(0, "train"), start(1, "warmup"), step(2, 1, 10), stop(3, "warmup"), step(4, 2, 20), stop(5, "train")
    )

    assert count_work(transcript, phase="train") == Work(n_steps=1, n_tokens=10)


def test_a_resumed_program_says_where_it_stands_before_it_trains() -> None:
    """A step event before the phase sets the counts that the phase starts from."""
    transcript = said(step(0, 100, 1000), start(1, "train"), step(2, 101, 1010), stop(3, "train"))

    assert count_work(transcript, phase="train") == Work(n_steps=1, n_tokens=10)


def test_steps_outside_of_every_phase_belong_to_the_job() -> None:
    """A program that names no phases."""
    assert count_work(said(step(1, 1, 10), step(2, 2, 20)), phase=JOB) == Work(n_steps=2, n_tokens=20)


def test_no_step_in_the_phase_is_no_count() -> None:
    """None, and not 0."""
    assert count_work(said(start(1, "train"), stop(2, "train")), phase="train") == Work(n_steps=None, n_tokens=None)


def test_trimming_takes_the_margin_from_every_edge() -> None:
    """Segments that the margins use up are gone; a window of nothing is None."""
    trimmed = trim_window(window("train", (0, 100), (200, 220), (300, 321)), margin_ns=10)

    assert trimmed == window("train", (10, 90), (310, 311))
    assert trim_window(window("train", (0, 20)), margin_ns=10) is None
