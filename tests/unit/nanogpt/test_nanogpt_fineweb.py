"""The download, from a server of its own that speaks the hub's protocol and cuts connections."""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fineweb
from tokens import ShardError, write_shard

N_TOKENS = 1000
N_VALIDATION = (
    9_000_000  # the hub's client writes pieces of 10 MiB, so less than that is begun again and not gone on with
)
COMMIT = "a" * 40


@dataclass
class Hub:
    """Files by name, and what happened."""

    files: dict[str, bytes]
    url: str = ""
    n_cuts_left: int = 0
    stated: dict[str, str] = field(default_factory=dict)
    ranges: list[str] = field(default_factory=list)
    n_bodies: int = 0


def make_handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    """A server's handler for that hub."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            """`paths-info`: sizes and checksums of the files asked for."""
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            names = [name for name in hub.files if name in body]
            self._send_json(
                [
                    {
                        "type": "file",
                        "path": name,
                        "size": len(hub.files[name]),
                        "oid": "0" * 40,
                        "lfs": {"oid": hub.stated[name], "size": len(hub.files[name]), "pointerSize": 134},
                    }
                    for name in names
                ]
            )

        def do_HEAD(self) -> None:
            """What a file is."""
            self._send_file(with_body=False)

        def do_GET(self) -> None:
            """A file, or its rest."""
            self._send_file(with_body=True)

        def _send_file(self, *, with_body: bool) -> None:
            name = self.path.split("?")[0].rsplit("/", 1)[-1]
            if name not in hub.files:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content, asked = hub.files[name], self.headers.get("Range")
            start = int(re.findall(r"\d+", asked)[0]) if asked else 0
            if asked and with_body:
                hub.ranges.append(asked)
            self.send_response(206 if asked else 200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hub.stated[name]}"')
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(content) - start))
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            if not with_body:
                return
            hub.n_bodies += 1
            if hub.n_cuts_left:
                hub.n_cuts_left -= 1
                self.wfile.write(content[start : start + 2 * len(content) // 3])
                self.close_connection = True
                return
            self.wfile.write(content[start:])

        def _send_json(self, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A validation shard and two training shards."""
    files = {}
    for name in fineweb.shard_names(2):
        n_tokens = N_TOKENS if files else N_VALIDATION
        write_shard(tmp_path / name, np.full(n_tokens, len(files), dtype=np.uint16))
        files[name] = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
    hub = Hub(files, stated={name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(hub))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    yield hub
    server.shutdown()
    server.server_close()
    thread.join()


def run_fineweb(*arguments: str, workload: Path, data: Path, endpoint: str) -> subprocess.CompletedProcess[str]:
    """`python fineweb.py ...` with that endpoint."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run(
        [sys.executable, "fineweb.py", *arguments],
        cwd=workload,
        env={
            **environment,
            "ECOBENCH_DATA": str(data),
            "HF_ENDPOINT": endpoint,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HOME": str(data / "home"),
            "PYTHONPATH": str(workload.parents[1]),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_download_goes_on_where_a_connection_was_cut(hub: Hub, tmp_path: Path, workload_folder: Path) -> None:
    """Two cuts, and the rest is asked for from where they were; a second download fetches nothing."""
    hub.n_cuts_left = 2

    done = run_fineweb("download", "--shards=2", "--json", workload=workload_folder, data=tmp_path, endpoint=hub.url)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["present"], said["n_train_tokens"], said["n_validation_tokens"]) == (True, 2000, N_VALIDATION)
    for name, content in hub.files.items():
        assert (tmp_path / "fineweb10B-gpt2" / name).read_bytes() == content
        assert name in done.stderr
    assert hub.n_cuts_left == 0
    assert hub.ranges
    assert all(asked == f"bytes={10 * 2**20}-" for asked in hub.ranges)
    n_bodies = hub.n_bodies
    again = run_fineweb("download", "--shards=2", "--json", workload=workload_folder, data=tmp_path, endpoint=hub.url)
    assert json.loads(again.stdout) == said
    assert hub.n_bodies == n_bodies


def test_a_file_that_is_not_what_the_hub_states_is_not_kept(hub: Hub, tmp_path: Path, workload_folder: Path) -> None:
    """Another checksum, same size: an error that names the file, and it is gone."""
    name = fineweb.shard_names(1)[1]
    hub.stated[name] = "f" * 64

    done = run_fineweb("download", "--shards=1", workload=workload_folder, data=tmp_path, endpoint=hub.url)

    assert done.returncode == 1
    assert f"{name}: sha256" in done.stderr
    assert not (tmp_path / "fineweb10B-gpt2" / name).exists()


def test_without_a_network_the_message_names_the_way_out(tmp_path: Path, workload_folder: Path) -> None:
    """A mirror, a copy, or the preset that needs none."""
    done = run_fineweb("download", "--shards=1", workload=workload_folder, data=tmp_path, endpoint="http://127.0.0.1:9")

    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: no download")
    assert all(word in last for word in ("HF_ENDPOINT", "ECOBENCH_DATA", "--preset cpu"))


def test_shards_brought_by_hand_serve_as_well(tmp_path: Path) -> None:
    """Hashed once; another token is another hash; a cut file is named."""
    names = fineweb.shard_names(2)
    for number, name in enumerate(names):
        write_shard(tmp_path / name, np.full(100, number, dtype=np.uint16))
    first = fineweb.hash_shards(tmp_path, 2)

    assert fineweb.hash_shards(tmp_path, 2) == first
    assert fineweb.hash_shards(tmp_path, 1) != first
    write_shard(tmp_path / names[2], np.full(101, 2, dtype=np.uint16))
    assert fineweb.hash_shards(tmp_path, 2) != first
    (tmp_path / names[1]).write_bytes((tmp_path / names[1]).read_bytes()[:-1])
    with pytest.raises(ShardError, match=re.escape(names[1])):
        fineweb.hash_shards(tmp_path, 2)
    (tmp_path / names[1]).unlink()
    with pytest.raises(ShardError, match="1 of 3 shards are missing"):
        fineweb.hash_shards(tmp_path, 2)


@pytest.mark.parametrize(("n_tokens", "n_shards"), [(688_128_000, 9), (695_992_320, 9), (10_255_073_280, 103)])
def test_shards_are_as_many_as_training_goes_through(n_tokens: int, n_shards: int) -> None:
    """Nine for the speedrun, all for GPT-2's ten billion."""
    assert fineweb.shards_for(n_tokens) == n_shards
