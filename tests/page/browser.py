"""browser.py: a headless Chromium, by its DevTools protocol over a pipe: no library, no port.

    b = Browser("chromium")
    b.open("http://127.0.0.1:7433/")
    b.wait("document.title === 'Jobs'")
    b.picture("jobs.png")
    b.close()
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Failed(Exception):
    pass


class Browser:
    def __init__(self, program, width=1400, height=1000):
        self.profile = tempfile.mkdtemp(prefix="seqd-browser.")
        to_r, self.to = os.pipe()
        self.back, back_w = os.pipe()
        os.set_inheritable(to_r, True)
        os.set_inheritable(back_w, True)

        def descriptors():  # 3: what it reads, 4: what it writes; either may be in use now
            os.dup2(to_r, 30)
            os.dup2(back_w, 31)
            os.dup2(30, 3)
            os.dup2(31, 4)

        # No sandbox: tests run as root in containers, and the only page is seqd's. No network but it.
        self.process = subprocess.Popen(
            [program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--disable-extensions",
             "--proxy-server=direct://", f"--user-data-dir={self.profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=descriptors)
        os.close(to_r)
        os.close(back_w)
        self.n = 0
        self.rest = b""
        self.requests, self.complaints, self.downloads = [], [], []
        self.session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setScrollbarsHidden", hidden=True)
        self.size(width, height)

    def _read(self, until):
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.back], [], [], left)[0]:
                raise Failed("the browser does not answer")
            got = os.read(self.back, 1 << 20)
            if not got:
                raise Failed("the browser has ended")
            self.rest += got
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def _note(self, m):
        method, p = m.get("method"), m.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(p["request"])
        elif method == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.complaints.append(d.get("exception", {}).get("description") or d["text"])
        elif method == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.complaints.append(p["entry"]["text"])
        elif method == "Page.downloadWillBegin":
            self.downloads.append(p["suggestedFilename"])

    def call(self, method, **params):
        self.n += 1
        m = {"id": self.n, "method": method, "params": params}
        if self.session and not method.startswith("Target."):
            m["sessionId"] = self.session
        os.write(self.to, json.dumps(m).encode() + b"\0")
        until = time.monotonic() + 60
        while True:
            answer = self._read(until)
            if answer.get("id") == self.n:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def ask(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            d = r["exceptionDetails"]
            raise Failed(f"{expression}: {d.get('exception', {}).get('description') or d['text']}")
        return r["result"].get("value")

    def wait(self, expression, seconds=60):
        """Until the expression is true; Failed past the seconds."""
        until = time.monotonic() + seconds
        while not self.ask(f"!!({expression})"):
            if time.monotonic() > until:
                raise Failed(f"never came true: {expression}")
            time.sleep(0.05)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, word):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": word}])

    def key(self, key, code=0, text=None):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def picture(self, path):
        """All of the page, as high as it is."""
        box = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": box["width"], "height": min(box["height"], 6000), "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def close(self):
        try:
            self.call("Browser.close")
        except (Failed, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)
