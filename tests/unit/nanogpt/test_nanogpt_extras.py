"""What surrounds training: formulas, page cache, HellaSwag, transport, spans, events."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import formulas
import operations
import page_cache
from hellaswag import HellaSwagError, Question, choose_ending, encoder, read_questions, score
from parameters import parse_parameters
from ranks import Ranks
from spans import Spans
from tokens import write_shard
from train import Trainer, find_micro_batch, make_trainer, prepare_cache
from transport import TransportError, check_transport, choose_transport, read_transports

NCCL_HOST = "node:1:9 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
NCCL_P2P = "node:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def trainer_of(folder: Path, *arguments: str) -> Trainer:
    """Two layers on random bytes."""
    tokens = np.random.default_rng(0).integers(0, 64, 4000, dtype=np.uint16)
    write_shard(folder / "a_train_000001.bin", tokens)
    write_shard(folder / "a_val_000000.bin", tokens[:1000])
    small = ("--layers=2", "--width=32", "--sequence_length=32", "--steps=4", "--validation_tokens=256")
    alone = Ranks(rank=0, world=1, device=torch.device("cpu"))
    return make_trainer(parse_parameters([*small, *arguments]), alone, folder=folder)


def test_formulas_for_a_compiler_are_the_operations_of_a_cpu() -> None:
    """The same numbers from both, for all three."""
    x = torch.randn(2, 5, 3, 2, 16)
    angles = torch.rand(5, 1, 1, 4)
    tables = [table.expand(5, 2, 2, 4).contiguous() for table in (angles.cos(), angles.sin())]

    torch.testing.assert_close(formulas.rms_norm(x), operations.rms_norm(x))
    torch.testing.assert_close(formulas.relu_squared(x), operations.relu_squared(x))
    for one, other in zip(formulas.split_heads(x, *tables), operations.split_heads(x, *tables), strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(
        formulas.split_heads(x, angles.cos(), angles.sin()), operations.split_heads(x, *tables), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_cold_data_is_out_of_memory_and_trains_the_same(tmp_path: Path) -> None:
    """Pages are dropped, checked, and the loader goes on where it was."""
    try:
        probe = tmp_path / "probe"
        probe.write_bytes(bytes(2**20))
        page_cache.drop([probe])
    except page_cache.PageCacheError:
        pytest.skip("the file system for temporary files lives in memory")
    cold, warm = trainer_of(tmp_path, "--data_cache=cold"), trainer_of(tmp_path)
    for trainer in (cold, warm):
        trainer.step(1)

    warm.loader.close()
    prepare_cache(cold)
    assert page_cache.resident_share(cold.loader.paths[0]) <= page_cache.ALLOWED_SHARE
    warm.loader.open()
    prepare_cache(warm)

    assert page_cache.resident_share(warm.loader.paths[0]) == 1.0
    assert torch.equal(cold.step(2), warm.step(2))


def test_pages_that_stay_are_an_error(tmp_path: Path) -> None:
    """A mapped file cannot be dropped, and a run that says cold and is warm would lie."""
    path = tmp_path / "mapped"
    path.write_bytes(bytes(range(256)) * 4096)
    mapped = np.memmap(path, dtype=np.uint8, mode="r")
    assert int(mapped[::4096].sum()) == 0

    with pytest.raises(page_cache.PageCacheError, match="data_cache=warm"):
        page_cache.drop([path])


def test_micro_batch_that_is_found_out_leaves_no_trace(tmp_path: Path) -> None:
    """One of 1, 2, 4, 8; weights, moments and position are as before."""
    tried, plain = trainer_of(tmp_path, "--micro_batch=auto"), trainer_of(tmp_path)

    tried.micro_batch = find_micro_batch(tried)

    assert tried.micro_batch in (1, 2, 4, 8)
    tried.micro_batch = plain.micro_batch
    for step in (1, 2):
        assert torch.equal(tried.step(step), plain.step(step))


def test_spans_take_the_inner_out_of_the_outer() -> None:
    """An outer part of 30 ms with 20 ms of another in it; off, nothing is measured and nothing waited for."""
    waits: list[int] = []
    on, off = Spans(lambda: waits.append(1), is_on=True), Spans(lambda: waits.append(1), is_on=False)
    for spans in (on, off):
        with spans.measure("optimizer"):
            time.sleep(0.01)
            with spans.measure("communication"):
                time.sleep(0.02)

    spent = on.take()
    assert spent["communication"] >= 0.02
    assert 0.01 <= spent["optimizer"] < 0.02
    assert len(waits) == 4
    assert off.take() == on.take() == {}


def test_host_transport_is_set_and_read_back(tmp_path: Path) -> None:
    """NCCL's own log decides; p2p asks for nothing."""
    environment: dict[str, str] = {}
    log = tmp_path / "nccl.log"
    choose_transport("p2p", environment, log=log)
    assert environment == {}
    choose_transport("host", environment, log=log)
    assert (environment["NCCL_P2P_DISABLE"], environment["NCCL_NVLS_ENABLE"]) == ("1", "0")

    assert read_transports(NCCL_HOST + NCCL_P2P) == {"SHM", "P2P"}
    log.write_text(NCCL_HOST)
    check_transport("host", log)
    for text in (NCCL_HOST + NCCL_P2P, ""):
        log.write_text(text)
        with pytest.raises(TransportError, match="SHM was expected"):
            check_transport("host", log)


def losses_by_alphabet(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A model that knows the alphabet: 0 where a target follows its token, else 1."""
    return (targets != tokens + 1).float()


def test_hellaswag_takes_the_least_surprising_ending() -> None:
    """By mean over the ending's own tokens, so that a long right ending beats a short wrong one."""
    question = Question(beginning="z", endings=("q", "bcdefg", "zz"), label=1)
    encode = encoder("stdlib")

    assert choose_ending(question, losses_by_alphabet, encode, separator=256) == 1
    assert choose_ending(question, losses_by_alphabet, encode, separator=256, multiple=16) == 1
    wrong = Question(beginning="z", endings=question.endings, label=0)
    assert score([question, wrong, question, question], losses_by_alphabet, encode, separator=256) == 0.75


def test_hellaswag_file_is_read_or_its_line_named(tmp_path: Path) -> None:
    """As published: JSON lines with ctx, endings and label."""
    path = tmp_path / "set.jsonl"
    entry = {"ctx": "A man", "endings": ["runs", "a", "b", "c"], "label": 0, "ind": 4}
    path.write_text(json.dumps(entry) + "\n" + json.dumps({**entry, "label": "3"}) + "\n")

    assert [one.label for one in read_questions(path)] == [0, 3]
    path.write_text(json.dumps(entry) + "\n" + json.dumps({**entry, "label": 4}) + "\n")
    with pytest.raises(HellaSwagError, match="line 2: label 4"):
        list(read_questions(path))
    path.write_text('{"ctx": "x"}\n')
    with pytest.raises(HellaSwagError, match="line 1"):
        list(read_questions(path))


def test_trained_model_gives_a_loss_to_every_token(tmp_path: Path) -> None:
    """Their sum is the loss that training sees."""
    trainer = trainer_of(tmp_path)
    tokens = torch.randint(0, 64, (2, 33))

    by_token = trainer.model.token_losses(tokens[:, :-1], tokens[:, 1:])

    assert by_token.shape == (2, 32)
    torch.testing.assert_close(by_token.sum(), trainer.model(tokens[:, :-1], tokens[:, 1:]).detach())
