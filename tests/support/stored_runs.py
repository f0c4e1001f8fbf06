"""Whole run folders with known numbers, made by the store and the conclusions of the real program.

    run = stored_run(tmp_path)                            one trial, one counter at 20 W: 5 s of train cost 100 J
    run = stored_run(tmp_path, speeches=(SPEECH, SPEECH), lost=(1,))       the harness was killed in the second trial

A trial's sampler runs from 0 s to 10 s; its workload from 1 s to 9 s and says `SPEECH`: warm-up from 1 s to 3 s, train
from 3 s to 8 s with 1000 tokens, and 1 s that no phase owns.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ecobench.measurement import Evidence, Interval, MeterInfo
from ecobench.reading import read_run
from ecobench.records import SCHEMA, RunRecord, TrialEnd, TrialRecord, TrialStatus
from ecobench.result import conclude_trial
from ecobench.store import RunFolder
from ecobench.store.samples import SampleWriter, read_traces
from records_for_tests import METER, SPEECH, S, as_lines, but, run_record, run_spec, sample, trial_end

ESTIMATE = but(
    METER,
    domain="cpu/workload",
    interface="estimate",
    evidence=Evidence.EST,
    instrument_share=Interval(low=-0.5, high=1.0),
    counted="CPU time of the workload",
    basis="10 W a busy core, 5 to 20 W.",
)
PACKAGE_0 = METER
PACKAGE_1 = but(METER, domain="cpu:1/package")
DRAM = but(METER, domain="cpu:0/dram")

Event = Mapping[str, Any]


def stored_run(
    root: Path,
    *,
    run: RunRecord | None = None,
    powers_w: Mapping[MeterInfo, float] | None = None,
    speeches: Sequence[Sequence[Event]] = (SPEECH,),
    ends: Mapping[int, TrialEnd] | None = None,
    lost: Sequence[int] = (),
    never_started: Sequence[int] = (),
) -> RunFolder:
    """A run in `root` whose trials said `speeches` while each meter drew its constant power (default: one, 20 W).

    Trials in `lost` have no record, and the run no summary; those in `never_started` have a record and nothing else.
    """
    powers = {PACKAGE_0: 20.0} if powers_w is None else powers_w
    record = run or run_record(spec=run_spec(n_trials=len(speeches)))
    record = but(record, meters=tuple(powers))
    folder = RunFolder(root / record.id)
    folder.path.mkdir(parents=True)
    folder.write(record)
    for index, speech in enumerate(speeches):
        trial = folder.trial(index)
        trial.create()
        if index in never_started:
            trial.write(_never_started(index))
            continue
        trial.samples.parent.mkdir(exist_ok=True)
        with SampleWriter(trial.samples, list(powers)) as writer:
            for time_ns in range(0, 10 * S + 1, S // 10):
                writer.append(
                    [
                        (place, sample(time_ns, round(power_w * time_ns / S / meter.si_per_count)))
                        for place, (meter, power_w) in enumerate(powers.items())
                    ]
                )
        (trial.events / "rank-00000.jsonl").write_bytes(as_lines(*(dict(event) for event in speech)))
        if index not in lost:
            trial.write(
                conclude_trial(
                    record.spec,
                    trial.read_transcripts(),
                    read_traces(trial.samples),
                    (ends or {}).get(index, trial_end()),
                    index=index,
                    started_utc="2026-09-02T14:15:04.000+00:00",
                )
            )
    if not lost:
        folder.write_summary(read_run(folder).summary)
    return folder


def embedded_json(page: str, element: str) -> Any:
    """What the page carries in `<script type="application/json" id=ELEMENT>`."""
    start = page.index(">", page.index(f'<script type="application/json" id="{element}"')) + 1
    return json.loads(page[start : page.index("</script>", start)])


def _never_started(index: int) -> TrialRecord:
    return TrialRecord(
        schema=SCHEMA,
        index=index,
        status=TrialStatus.FAILED,
        started_utc="2026-09-02T14:15:04.000+00:00",
        message="no program `missing`",
        end=None,
        result=None,
    )
