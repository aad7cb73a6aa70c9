"""Debian mirrors of a test's own: signed lists without files. Enough for everything that apt decides."""

import hashlib
import os
import subprocess
from pathlib import Path


class Mirror:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = f"file://{directory}/mirror"
        self.keyring = str(directory / "keyring.gpg")
        (directory / "gnupg").mkdir(parents=True, mode=0o700)
        self._gpg("--quick-gen-key", "mirror@example.org", "ed25519", "sign", "never")
        Path(self.keyring).write_bytes(self._gpg("--export"))

    def publish(self, suite: str, packages: dict[str, str], version: str = "1.0") -> None:
        """Package -> what it depends on."""
        stanzas = [
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n{f'Depends: {needs}{chr(10)}' if needs else ''}"
            f"Filename: pool/{name}_{version}_amd64.deb\nSize: 1\nSHA256: {hashlib.sha256(name.encode()).hexdigest()}\n"
            for name, needs in packages.items()
        ]
        place = self.directory / "mirror" / "dists" / suite
        lists = place / "main" / "binary-amd64" / "Packages"
        lists.parent.mkdir(parents=True, exist_ok=True)
        lists.write_text("\n".join(stanzas))
        digest, size = hashlib.sha256(lists.read_bytes()).hexdigest(), lists.stat().st_size
        release = place / "Release"
        release.write_text(
            f"Suite: {suite}\nCodename: {suite}\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nArchitectures: amd64\n"
            f"Components: main\nSHA256:\n {digest} {size} main/binary-amd64/Packages\n"
        )
        (place / "InRelease").unlink(missing_ok=True)
        self._gpg("--clearsign", "--output", str(place / "InRelease"), str(release))

    def _gpg(self, *arguments: str) -> bytes:
        environment = {**os.environ, "GNUPGHOME": str(self.directory / "gnupg")}
        command = ["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "", *arguments]
        return subprocess.run(command, check=True, capture_output=True, env=environment).stdout

    def close(self) -> None:
        environment = {**os.environ, "GNUPGHOME": str(self.directory / "gnupg")}
        subprocess.run(["gpgconf", "--kill", "all"], check=False, capture_output=True, env=environment)
