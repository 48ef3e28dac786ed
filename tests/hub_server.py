"""A small server that speaks as much of the Hugging Face Hub's API as its client needs to write and read."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Files larger than this are sent as Git LFS objects, as the hub asks for.
LARGEST_REGULAR = 10_000
TOKEN = "hf_of_the_tests"
_COMMIT = "0123456789" * 4


class HubServer(ThreadingHTTPServer):
    """Attributes: `repositories`, name -> file -> content; `requests`, (method, path) of all requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *values: object) -> None:
        """Prints nothing."""

    def answer(self, content: object = b"", status: int = 200, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.server.requests.append(("POST", path))
        if path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer({"error": "Invalid username or password."}, 401)
        if path == "/api/repos/create":
            repository = json.loads(body)
            name = f"{repository['organization']}/{repository['name']}"
            if name in self.server.repositories:
                error = "You already created this model repo"
                return self.answer({"error": error, "url": f"{self.server.url}/{name}"}, 409)
            self.server.repositories[name] = {".gitattributes": b"*.tflite filter=lfs\n"}
            return self.answer({"url": f"{self.server.url}/{name}"})
        if "/preupload/" in path:
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["size"] > LARGEST_REGULAR else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            return self.answer({"files": modes})
        if path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {**entry, "actions": {"upload": {"href": f"{self.server.url}/upload/{entry['oid']}"}}}
                for entry in json.loads(body)["objects"]
            ]
            return self.answer({"transfer": "basic", "objects": objects})
        if "/commit/" in path:
            return self._commit(path, body)
        return self.answer({"error": f"no {path}"}, 404)

    def _commit(self, path: str, body: bytes) -> None:
        name = path.removeprefix("/api/models/").partition("/commit/")[0]
        files = self.server.repositories[name]
        for entry in map(json.loads, body.splitlines()):
            value = entry["value"]
            if entry["key"] == "file":
                assert value["encoding"] == "base64"
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
        self.answer(
            {"success": True, "commitOid": _COMMIT, "commitUrl": f"{self.server.url}/{name}/commit/{_COMMIT}"}
        )

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(("PUT", self.path))
        assert hashlib.sha256(content).hexdigest() == self.path.removeprefix("/upload/")
        self.server.objects[self.path.removeprefix("/upload/")] = content
        self.answer()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.requests.append((self.command, path))
        if path.startswith("/api/models/"):
            name = path.removeprefix("/api/models/").partition("/revision/")[0]
            if name not in self.server.repositories:
                return self._missing("RepoNotFound")
            siblings = [{"rfilename": file} for file in self.server.repositories[name]]
            return self.answer({"id": name, "modelId": name, "sha": _COMMIT, "siblings": siblings})
        name, separator, file = path[1:].partition(f"/resolve/{_COMMIT if _COMMIT in path else 'main'}/")
        if not separator or name not in self.server.repositories:
            return self._missing("RepoNotFound")
        if file not in self.server.repositories[name]:
            return self._missing("EntryNotFound")
        content = self.server.repositories[name][file]
        digest = hashlib.sha256(content).hexdigest()
        return self.answer(content, ETag=f'"{digest}"', X_Repo_Commit=_COMMIT, Accept_Ranges="none")

    do_HEAD = do_GET

    def _missing(self, code: str) -> None:
        self.answer({"error": code}, 404, X_Error_Code=code, X_Repo_Commit=_COMMIT)


@contextmanager
def running_hub() -> Iterator[HubServer]:
    """A server without repositories, on a free port of this machine."""
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
