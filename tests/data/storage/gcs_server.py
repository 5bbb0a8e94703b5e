"""PyPI's gcp-storage-emulator as the tests need it, run by the Python of scripts/cloud_emulators.sh:

    python gcs_server.py FOLDER PORT REFRESH_TOKEN

It prints "listens on PORT", which port 0 leaves to the system, and answers several requests at once; the emulator's own
command does neither. What the emulator leaves out and the real store has:

- Buckets but "public" want the access token that /token gives for the refresh token, as Google's service for
  authorized users does (https://developers.google.com/identity/protocols/oauth2/web-server#offline).
  /token?status=404 answers with that status.
- Of an object that was written again, the former generation is not found
  (https://cloud.google.com/storage/docs/metadata#generation-number).
- An object whose contentEncoding is gzip is decompressed, and a range of it is ignored
  (https://cloud.google.com/storage/docs/transcoding).
- A range that begins behind the end is refused (https://www.rfc-editor.org/rfc/rfc9110#status.416).
"""

import functools
import gzip
import hashlib
import http.server
import sys
import urllib.parse

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

from emulator_process import answer_json


class Handler(RequestHandler):
    def __init__(self, storage, refresh_token, access_token, *arguments):
        self.refresh_token = refresh_token
        self.access_token = access_token
        super().__init__(storage, *arguments)

    def do_GET(self):
        refusal = self.refusal()
        if refusal:
            self.answer(*refusal)
        elif (self.requested_object() or {}).get("contentEncoding") == "gzip":
            self.give_decompressed()
        else:
            super().do_GET()

    def give_decompressed(self):
        content = gzip.decompress(self.storage.get_file(*self.object_of_path()))
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        if self.path.startswith("/token"):
            return self.give_token()
        refusal = self.refusal_of_token()
        self.answer(*refusal) if refusal else super().do_POST()

    def give_token(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if wanted := self.path.partition("?status=")[2]:
            return self.answer(int(wanted), {"error": "as wanted"})
        if form.get("refresh_token") != [self.refresh_token]:
            return self.answer(400, {"error": "invalid_grant", "error_description": "Bad Request"})
        self.answer(200, {"access_token": self.access_token, "expires_in": 3600, "token_type": "Bearer",
                          "scope": "https://www.googleapis.com/auth/devstorage.read_only", "id_token": ""})

    def object_of_path(self):
        """The bucket and the object of /storage/v1/b/BUCKET/o/OBJECT, as far as it names them."""
        words = urllib.parse.urlsplit(self.path).path.split("/")
        return [urllib.parse.unquote(word) for word in (words + [""] * 7)[4:7:2]]

    def refusal(self):
        """What to answer instead of what the emulator would."""
        return self.refusal_of_token() or self.refusal_of_range()

    def refusal_of_token(self):
        given = self.headers.get("Authorization")
        if given == f"Bearer {self.access_token}" or self.object_of_path()[0] == "public":
            return None
        return self.error(401, "Invalid Credentials" if given else "Anonymous caller does not have access.")

    def query(self):
        return urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)

    def requested_object(self):
        """The object whose content is asked for, if there is one."""
        if self.query().get("alt") != ["media"]:
            return None
        try:
            return self.storage.get_file_obj(*self.object_of_path())
        except NotFound:
            return None

    def refusal_of_range(self):
        found = self.requested_object()
        if not found:
            return None
        if self.query().get("generation", [found["generation"]]) != [found["generation"]]:
            return self.error(404, f"No such object: {'/'.join(self.object_of_path())}")
        begin = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0]
        if int(begin) >= int(found["size"]) > 0:
            return self.error(416, "Request range not satisfiable")
        return None

    @staticmethod
    def error(status, message):
        return status, {"error": {"code": status, "message": message, "errors": [{"message": message}]}}

    answer = answer_json


def main():
    folder, port, refresh_token = sys.argv[1:]
    # The same from a server that comes back.
    access_token = hashlib.sha256(refresh_token.encode()).hexdigest()
    handler = functools.partial(Handler, Storage(data_dir=folder), refresh_token, access_token)
    with http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), handler) as server:
        print(f"listens on {server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
