"""A headless Chromium, driven over its DevTools protocol through two pipes: no port, no driver, no package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = 60.0


def chromium() -> str | None:
    """The browser, where one is installed."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    """One browser with one page. ``events`` holds all that it reported."""

    def __init__(self, program: str, profile: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._profile = profile
        self._number = 0
        self._rest = b""
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        command = [
            program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run",
            "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
            "--disable-component-update", "--disable-extensions", "--hide-scrollbars", "--mute-audio", "about:blank",
        ]  # fmt: skip
        # The browser reads descriptor 3 and writes descriptor 4; the shell puts ours there.
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        with open(profile / "stderr.txt", "wb") as errors:
            self._process = subprocess.Popen(
                ["bash", "-c", shell, "browser", *command],
                pass_fds=(to_browser, from_browser),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, "HOME": str(profile), "XDG_CONFIG_HOME": str(profile)},
            )
        os.close(to_browser)
        os.close(from_browser)
        self._session: str | None = None
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and wait for it."""
        os.close(self._to)  # at which it ends by itself
        os.close(self._from)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def wait_for(self, event: str, since: int = 0) -> dict[str, Any]:
        """The first event of a kind after the `since`-th of all."""
        while True:
            found = next((e for e in self.events[since:] if e["method"] == event), None)
            if found is not None:
                return found
            self._read()

    def _read(self) -> dict[str, Any]:
        """One message; events are kept."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._from, 1 << 16)
            if not data:
                raise RuntimeError(f"the browser ended: {(self._profile / 'stderr.txt').read_text()[-2000:]}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def show(self, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """Set size and colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        since = len(self.events)
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("Page.loadEventFired", since)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def move(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """Press a key that writes no letter."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def picture(self, path: Path, top: float, width: float, height: float) -> None:
        """Write a PNG of a part of the page."""
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def problems(self) -> list[str]:
        """Errors and warnings on the console, and uncaught exceptions."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        found = [json.dumps(e["params"]) for e in self.events if e["method"] in kinds]
        calls = [e["params"] for e in self.events if e["method"] == "Runtime.consoleAPICalled"]
        return found + [json.dumps(c) for c in calls if c["type"] in ("error", "warning", "assert")]

    def requests(self) -> list[str]:
        """All that the page asked for."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]
