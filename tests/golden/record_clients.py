#!/usr/bin/env python3
"""record_clients.py: keeps what a client asks of a serve job, as cases that tests/scripts/clients.sh
asks again without the client.

    record_clients.py URL OUT FILE

A proxy before URL, the base URL of a job's door. It writes its own base URL to FILE, and at SIGINT
the cases to OUT: of the requests that differ in path, status and kinds of members alone, the
shortest. A case has four lines: method, path and status; headers, between tabs; the body; the shape
of the answer (tests/scripts/shape.awk). tests/clients/run.sh runs it with RECORD=1.
"""
import http.client
import http.server
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.parse

UPSTREAM, OUT, FILE = sys.argv[1:4]
BASE = urllib.parse.urlsplit(UPSTREAM)
SHAPE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../scripts/shape.awk")
PACKAGES = {"openai": ["openai"], "langchain": ["langchain-openai", "openai"], "lm_eval": ["lm-eval"]}
# Of a connection, or of one client: no header of a case.
OWN = {"host", "authorization", "content-length", "connection"}
LONGEST_BODY, MOST_TOKENS = 4096, 100  # a replay is short
BY_LUCK = {429, 503}                   # statuses of a moment
# Refusals of members that a later version may take.
LATER = {"prompt", "input", "response_format", "tools", "tool_choice", "logit_bias"}
cases, lock = {}, threading.Lock()


def kind(value, key=""):
    """The type of a member, of its members and items."""
    if isinstance(value, dict):
        return {k: kind(v, k) for k, v in sorted(value.items())}
    if isinstance(value, list):
        return [min(len(value), 2)] + sorted({json.dumps(kind(v)) for v in value})
    if isinstance(value, bool) or value is None or key in ("role", "type"):
        return value
    if isinstance(value, (int, float)):
        return [value < 0, value == 0, key == "n" and value]
    return "s"


def keep(method, path, status, headers, body, answer):
    asked = json.loads(body) if body else {}
    if status in BY_LUCK or len(body) > LONGEST_BODY or asked.get("max_tokens", 0) > MOST_TOKENS:
        return
    if status >= 400:
        error = json.loads(answer)["error"]
        if error["param"] in LATER or error["code"] in ("unsupported", "not_found"):
            return
    key = json.dumps([path, method, status, kind(asked)], sort_keys=True)
    with lock:
        if key not in cases or (len(body), body) < (len(cases[key][4]), cases[key][4]):
            cases[key] = (method, path, status, headers, body, answer)


class Proxy(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def forward(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        up = http.client.HTTPConnection(BASE.hostname, BASE.port, timeout=120)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
        answer = b""
        try:
            up.request(self.command, BASE.path + self.path, body or None, headers)
            r = up.getresponse()
            self.send_response(r.status)
            for k, v in r.getheaders():
                if k.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(k, v)
            self.end_headers()
            while piece := r.read1(65536):
                answer += piece
                self.wfile.write(piece)
        except OSError:
            return  # the client, or the job, has gone: no case
        finally:
            up.close()
            self.close_connection = True
        kept = "\t".join(f"{k}: {v}" for k, v in self.headers.items()
                         if k.lower() not in OWN and not k.lower().startswith("x-stainless"))
        keep(self.command, self.path, r.status, kept, body, answer)

    do_GET = do_POST = do_DELETE = forward


def shape(answer):
    return subprocess.run(["awk", "-f", SHAPE], input=answer, capture_output=True, check=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout.decode().strip()


def write(*_):
    name = os.path.splitext(os.path.basename(OUT))[0]
    versions = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in PACKAGES[name])
    with open(OUT, "w", encoding="utf-8") as f:
        f.write(f"# {versions}: record_clients.py wrote this\n")
        for _, (method, path, status, headers, body, answer) in sorted(cases.items()):
            f.write(f"{method} {path.lstrip('/')} {status}\n{headers}\n{body.decode() or '-'}\n{shape(answer)}\n")
    os._exit(0)


http.server.ThreadingHTTPServer.request_queue_size = 128
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
server.daemon_threads = True
signal.signal(signal.SIGINT, write)
with open(FILE + ".tmp", "w", encoding="utf-8") as f:
    f.write(f"http://127.0.0.1:{server.server_port}\n")
os.replace(FILE + ".tmp", FILE)
threading.Thread(target=server.serve_forever, daemon=True).start()
while True:
    signal.pause()
