"""Stands in for a language model: an OpenAI-compatible server on loopback that replies from a list of policies.

The n-th request gets the n-th policy, in the form that its prompt requests: a SEARCH/REPLACE diff of
the current program (OpenEvolve, SkyDiscover), the same between tags (ShinkaEvolve), or a whole program in a fence.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from policies import REPLIES

FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
BLOCK = re.compile(r"(?<=// EVOLVE-BLOCK-START\n).*?(?=\n// EVOLVE-BLOCK-END)", re.DOTALL)


class StandIn:
    """`with StandIn() as model:` serves at `model.api_base`."""

    def __init__(self, policies: Sequence[str] = REPLIES) -> None:
        self.policies = policies
        self.prompts: list[str] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def api_base(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, prompt: str) -> str:
        with self._lock:
            index = len(self.prompts)
            self.prompts.append(prompt)
        return phrase(self.policies[index % len(self.policies)], prompt, index)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt = "\n\n".join(str(message["content"]) for message in body["messages"])
                self._send(completion(body.get("model", ""), stand_in.reply(prompt)))

            def do_GET(self) -> None:
                self._send({"object": "list", "data": [{"id": "stand-in", "object": "model"}]})

            def _send(self, document: dict[str, Any]) -> None:
                data = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def completion(model: str, text: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def phrase(policy: str, prompt: str, index: int) -> str:
    """`policy` as a reply to `prompt`."""
    current = current_block(prompt)
    if "<DIFF>" in prompt and current is not None:
        return named(index, f"<DIFF>\n{diff(current, policy)}\n</DIFF>")
    if "<CODE>" in prompt:
        return named(index, f"<CODE>\n```rhai\n{whole(policy)}\n```\n</CODE>")
    if "<<<<<<< SEARCH" in prompt and current is not None:
        return f"Shorter queues first.\n\n{diff(current, policy)}\n"
    # Some models take Rhai for Rust.
    tag = "rust" if index % 3 == 1 else "rhai"
    return f"```{tag}\n{whole(policy)}\n```"


def current_block(prompt: str) -> str | None:
    """The text between the markers of the last program in `prompt` that has markers."""
    fences = [fence for fence in FENCE.findall(prompt) if "the new policy" not in fence]
    blocks = [block[0] for fence in fences if (block := BLOCK.search(fence))]
    return blocks[-1] if blocks else None


def diff(current: str, policy: str) -> str:
    return f"<<<<<<< SEARCH\n{current}\n=======\n{policy}\n>>>>>>> REPLACE"


def whole(policy: str) -> str:
    return f"// EVOLVE-BLOCK-START\n{policy}\n// EVOLVE-BLOCK-END"


def named(index: int, body: str) -> str:
    return f"<NAME>\nidea_{index}\n</NAME>\n\n<DESCRIPTION>\nShorter queues first.\n</DESCRIPTION>\n\n{body}\n"
