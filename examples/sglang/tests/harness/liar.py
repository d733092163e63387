"""A rendezvous that answers what a test wants, or drips it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INFO = {"attn_tp_size": 1, "attn_cp_size": 1, "dp_size": 1, "pp_size": 1, "page_size": 8, "kv_cache_dtype": "bfloat16"}
RANK = {"rank_ip": "127.0.0.1", "rank_port": 9}


@contextmanager
def liar(info: Any, rank: Any = None, *, drips: bool = False) -> Iterator[str]:
    """Serves `info` of the engine and `rank` of each of its workers, bytes as they are; the address."""

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_GET(self) -> None:  # noqa: N802
            if drips:
                self._drip()
                return
            answer = info if "target_tp_rank=-1" in self.path else rank
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ARG002
            """Says nothing."""

        def _drip(self) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            for _ in range(1000):
                try:
                    self.wfile.write(b"x")
                except OSError:
                    return
                time.sleep(0.05)

    class Server(ThreadingHTTPServer):
        """Does not wait for its clients."""

        daemon_threads = True
        block_on_close = False

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
