"""A headless Chromium that is driven through a pipe by the DevTools protocol; no package is needed."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
MISSING = ("no browser: apt-get install chromium (Debian; `scripts/setup.sh test` does it). On Ubuntu `chromium` is a snap, which "
           "cannot read /tmp: install google-chrome instead")


def find_browser():
    """The program, or None. Ubuntu's stub of a snap answers --version with an error, so it is asked."""
    for name in NAMES:
        program = shutil.which(name)
        if program and subprocess.run([program, "--version"], capture_output=True).returncode == 0:
            return program
    return None


class Browser:
    def __init__(self, program):
        self._home = tempfile.mkdtemp(prefix="veil_chromium_")
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()

        def inherit():  # the protocol wants file descriptors 3 and 4
            os.dup2(read_there, 103)
            os.dup2(write_there, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        self._process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self._home}", "about:blank"],
            preexec_fn=inherit, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_there), os.close(write_there)
        self._in, self._out, self._rest, self._count = read_here, write_here, b"", 0
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Network", "Log"]:
            self.call(domain + ".enable")

    _session = None

    def _receive(self, seconds):
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], seconds)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise RuntimeError("the browser ended")
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data):]
        while True:
            answer = self._receive(60)
            if answer.get("id") != self._count:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            return answer["result"]

    def open(self, address, width=1280, height=900, dark=False):
        """Loads a page and returns the events of its loading."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events = []
        self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive(60))
        return self.events

    def run(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "script error"))
        return answer["result"].get("value")

    def press(self, key):
        for kind in ["keyDown", "keyUp"]:
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Tab": 9, "Enter": 13}[key],
                      **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))

    def screenshot(self, path, width, height, scale=1.0):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": width, "height": height, "scale": scale})["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(20)
        except Exception:
            self._process.kill()
            self._process.wait()
        os.close(self._in), os.close(self._out)
        shutil.rmtree(self._home, ignore_errors=True)
