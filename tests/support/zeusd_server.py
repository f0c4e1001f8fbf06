"""A small server on a unix socket that speaks as much of zeusd as sets anything, and does so on the NVML test bed.

with ZeusdServer(folder / "zeusd.sock", bed) as server:
    ...  ZEUSD_SOCK_PATH=server.path
    server.requests      what was asked for, in order
"""

import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from nvml_bed import NvmlBed


class ZeusdServer:
    """Root's daemon: sets limits whatever the bed says of this process's permission."""

    def __init__(self, path: Path, bed: NvmlBed, *, token: str | None = None) -> None:
        self.path = path
        self.requests: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                split = urlsplit(self.path)
                values = {name: one[0] for name, one in parse_qs(split.query).items()}
                if token is not None and self.headers.get("Authorization") != f"Bearer {token}":
                    self._answer(401, "missing or invalid token")
                    return
                outer.requests.append((split.path, values))
                for gpu in map(int, values["gpu_ids"].split(",")):
                    if split.path == "/gpu/set_power_limit":
                        bed.set_limit(gpu, int(values["power_limit_mw"]) / 1000)
                    elif split.path == "/gpu/set_persistence_mode":
                        bed.set_persistence(gpu, is_on=values["enabled"] == "true")
                    else:
                        self._answer(404, "not found")
                        return
                self._answer(200, "")

            def _answer(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def address_string(self) -> str:
                return "unix"

            def log_message(self, *arguments: Any) -> None:
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self._server = Server(str(path), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
