"""Azure Blob Storage as libtrain reads it, against the Azurite emulator, which this test starts on a free port: the
cases of storage_cases.py, and credentials of all kinds.

Exit code 77, and a line that says so, where Azurite cannot be had; ctest then reports the test as skipped.
"""

import base64
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import azurite_emulator as emulator
import jobs
import storage_cases as cases

WRONG_KEY = base64.b64encode(b"not the key of the account").decode()
AZURITE = []  # the command, found before the tests begin


class Azure(cases.Store):
    SCHEME = "az"
    VERSION = "ETag"

    @classmethod
    def new_server(cls, folder):
        return emulator.Azurite(AZURITE, folder)

    def setUp(self):
        super().setUp()
        self.secrets += [emulator.KEY, WRONG_KEY]

    def credentials(self, port=None):
        return self.with_key(port=port)

    def with_key(self, **options):
        return {"AZURE_STORAGE_CONNECTION_STRING": self.server.connection_string(**options)}

    def without_key(self):
        return {"AZURE_STORAGE_BLOB_ENDPOINT": self.server.endpoint()}

    def new_sas(self, **options):
        token = emulator.account_sas(**options)
        self.secrets += [token, token.partition("sig=")[2]]
        return token


class Reading(Azure, cases.Reading):
    def test_refuses_a_folder_without_a_name(self):
        self.server.make_container("unnamed")
        self.server.put("unnamed", "train//x", b"")
        for location in ("az://unnamed", "az://unnamed/train"):
            self.require_refusal("list", location, says=["'az://unnamed/train'", "'//'", "Rename the object"])


class UnderTheReader(Azure, cases.UnderTheReader):
    pass


class Outages(Azure, cases.Outages):
    pass


class Credentials(Azure):
    @classmethod
    def fill(cls):
        cls.server.make_container("public", **{"x-ms-blob-public-access": "blob"})
        for container in ("data", "public"):
            cls.server.put(container, "train/x", b"content")

    def require_readable(self, location, environment):
        listed, = self.read("list", location, environment=environment)
        self.assertEqual((listed["path"], listed["size"]), ("x", 7))
        self.require_content(location, environment)

    def require_content(self, location, environment, *options):
        record, = self.read("hash", location, "x", *options, environment=environment)
        self.assertEqual(record["sha256"], cases.sha256(b"content"))

    def test_an_account_key(self):
        self.require_readable("az://data/train", self.with_key())
        self.require_readable(f"abfss://data@{emulator.ACCOUNT}.dfs.core.windows.net/train", self.with_key())
        self.require_readable("az://data/train", self.without_key() | {"AZURE_STORAGE_KEY": emulator.KEY})
        self.require_readable("az://data/train", self.without_key() | {
            "AZURE_STORAGE_KEY": emulator.KEY, "AZURE_STORAGE_ACCOUNT": emulator.ACCOUNT})

    def test_a_shared_access_signature(self):
        token = self.new_sas()
        for location in ("az://data/train", f"https://{emulator.ACCOUNT}.blob.core.windows.net/data/train",
                         f"abfss://data@{emulator.ACCOUNT}.dfs.core.windows.net/train"):
            self.require_readable(f"{location}?{token}", self.without_key())
            self.require_readable(location, self.without_key() | {"AZURE_STORAGE_SAS_TOKEN": token})
            self.require_readable(location, self.without_key() | {"AZURE_STORAGE_SAS_TOKEN": "?" + token})
        connection = f"BlobEndpoint={self.server.endpoint()};SharedAccessSignature={token}"
        self.require_readable("az://data/train", {"AZURE_STORAGE_CONNECTION_STRING": connection})

    def test_a_signature_that_only_reads_is_enough_to_read(self):
        token = self.new_sas(permissions="r")
        self.require_content(f"az://data/train?{token}", self.without_key())
        self.require_refusal("list", f"az://data/train?{token}", environment=self.without_key(),
                             says=["'az://data/train'", "access was refused", "403", "in the location"])

    def test_anonymous_access_to_public_blobs(self):
        self.require_content("az://public/train", self.without_key(), "--anonymous")
        self.require_refusal("hash", "az://data/train", "x", "--anonymous", environment=self.without_key(),
                             says=["'az://data/train/x'"])

    def test_a_wrong_key_is_refused_at_once(self):
        for command in (("list", "az://data/train"), ("hash", "az://data/train", "x")):
            self.require_refusal(*command, environment=self.with_key(key=WRONG_KEY),
                                 says=["'az://data/train", "access was refused", "403",
                                       "the account key in AZURE_STORAGE_CONNECTION_STRING"])

    def test_an_expired_signature_is_refused_at_once(self):
        token = self.new_sas(seconds=-60)
        for command in (("list", f"az://data/train?{token}"), ("hash", f"az://data/train?{token}", "x")):
            self.require_refusal(*command, environment=self.without_key(),
                                 says=["'az://data/train", "access was refused", "403", "which expires at 20"])

    def test_a_forged_signature_is_refused(self):
        token = self.new_sas(key=WRONG_KEY)
        self.require_refusal("hash", f"az://data/train?{token}", "x", environment=self.without_key(),
                             says=["access was refused", "403"])

    def test_damaged_settings_are_named(self):
        self.require_refusal("list", "az://data", environment={}, says=["AZURE_STORAGE_ACCOUNT"])
        self.require_refusal("list", "az://data", environment=self.without_key() | {"AZURE_STORAGE_KEY": "x y"},
                             says=["AZURE_STORAGE_KEY", "base64"])


if __name__ == "__main__":
    jobs.require_programs(cases.PROGRAM)
    AZURITE[:] = emulator.find_azurite()
    unittest.main()
