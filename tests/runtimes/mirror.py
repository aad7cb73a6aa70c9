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

    def publish(self, suite: str, packages: dict[str, dict[str, dict[str, str]]]) -> None:
        """Architecture -> package -> what its stanza says."""
        place = self.directory / "mirror" / "dists" / suite
        sums = []
        for architecture, listed in packages.items():
            lists = place / "main" / f"binary-{architecture}" / "Packages"
            lists.parent.mkdir(parents=True, exist_ok=True)
            lists.write_text("\n".join(_stanza(name, architecture, said) for name, said in listed.items()))
            digest, size = hashlib.sha256(lists.read_bytes()).hexdigest(), lists.stat().st_size
            sums.append(f" {digest} {size} main/binary-{architecture}/Packages\n")
        release = place / "Release"
        release.write_text(
            f"Suite: {suite}\nCodename: {suite}\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"
            f"Architectures: {' '.join(packages)}\nComponents: main\nSHA256:\n{''.join(sums)}"
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


def _stanza(name: str, architecture: str, said: dict[str, str]) -> str:
    about = {"Package": name, "Version": "1.0", "Architecture": architecture, **said}
    file = f"pool/{name}_{about['Version'].replace(':', '%3a')}_{about['Architecture']}.deb"
    lines = {**about, "Filename": file, "Size": "1", "SHA256": hashlib.sha256(file.encode()).hexdigest()}
    return "".join(f"{key}: {value}\n" for key, value in lines.items())
