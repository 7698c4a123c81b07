# SPDX-License-Identifier: Apache-2.0
"""The least a client in Python can do: wait, receive, note the time. Nothing is read of what arrives.

    python bare_client.py PORT REQUESTS TOKENS CONCURRENCY OUT

What it costs is the kernel's and the interpreter's share of every streaming client that stamps each token.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from pathlib import Path

END = b"0\r\n\r\n"


def request(number: int, tokens: int) -> bytes:
    message = {"role": "user", "content": f"number {number}: what is it"}
    body = json.dumps({"messages": [message], "max_tokens": tokens, "ignore_eos": True, "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def main(port: int, requests: int, tokens: int, concurrency: int, out: str) -> None:
    waiting = iter(range(requests))
    watch = select.epoll()
    running: dict[int, socket.socket] = {}
    arrived: list[tuple[float, bytes]] = []

    def start() -> None:
        number = next(waiting, None)
        if number is not None:
            sock = socket.create_connection(("127.0.0.1", port))
            sock.sendall(request(number, tokens))
            running[sock.fileno()] = sock
            watch.register(sock, select.EPOLLIN)

    for _ in range(concurrency):
        start()
    while running:
        for descriptor, _ in watch.poll():
            data = running[descriptor].recv(65536)
            arrived.append((time.perf_counter(), data))
            if not data or data.endswith(END):
                watch.unregister(descriptor)
                running.pop(descriptor).close()
                start()
    count = b"".join(data for _, data in arrived).count(b'"content":" ')
    Path(out).write_text(json.dumps({"total_output_tokens": count}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]), sys.argv[5])
