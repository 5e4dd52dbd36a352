"""Kerberos KDC (MIT) on loopback, for logins by GSSAPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.support import supervise
from tests.support.net import free_ports

REALM = "TEST.LOCAL"
SERVICE = "kafka/localhost"
USER = "alice"
PASSWORD = "alice-secret"
START_TIMEOUT_S = 90.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")

_KRB5_CONF = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 dns_canonicalize_hostname = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {realm}
"""
_KDC_CONF = """[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/kadm5.acl
  supported_enctypes = aes256-cts:normal aes128-cts:normal
 }}
"""


def missing_program() -> str | None:
    """Return the first program of MIT Kerberos that is not installed; None if all are."""
    return next((name for name in PROGRAMS if shutil.which(name, path=_PATH) is None), None)


class Kdc:
    """KDC with one service and one user. Its database and keytabs are in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        [self._port] = free_ports(1)
        values = {"realm": REALM, "port": self._port, "folder": folder}
        self.config = folder / "krb5.conf"
        """File for the environment variable KRB5_CONFIG."""
        self.config.write_text(_KRB5_CONF.format(**values))
        self._kdc_config = folder / "kdc.conf"
        self._kdc_config.write_text(_KDC_CONF.format(**values))
        (folder / "kadm5.acl").write_text("")
        self.service_keytab = folder / "kafka.keytab"
        self.user_keytab = folder / "alice.keytab"
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self._admin(f"addprinc -randkey {SERVICE}")
        self._admin(f"addprinc -pw {PASSWORD} {USER}")
        self._admin(f"ktadd -k {self.service_keytab} {SERVICE}")
        self._admin(f"ktadd -norandkey -k {self.user_keytab} {USER}")

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a client's process: the configuration, and a cache for its tickets."""
        cache = f"FILE:{self._folder / 'tickets'}"
        return {"KRB5_CONFIG": str(self.config), "KRB5CCNAME": cache}

    def start(self) -> None:
        """Start the KDC, and return once it accepts connections."""
        command = [self._program("krb5kdc"), "-n", "-r", REALM]
        self._process = subprocess.Popen(
            [sys.executable, supervise.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment(),
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._try_kinit() is not None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                failure = self._try_kinit()
                self.kill()
                raise AssertionError(f"the KDC did not start: {failure}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End the KDC."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None

    def kinit(self) -> None:
        """Put a ticket of the user into the cache of :attr:`environment`."""
        if (failure := self._try_kinit()) is not None:
            raise AssertionError(f"kinit failed: {failure}")

    def _try_kinit(self) -> str | None:
        done = subprocess.run(
            [self._program("kinit"), "-kt", str(self.user_keytab), USER],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return None if done.returncode == 0 else done.stderr

    def _admin(self, command: str) -> None:
        self._run("kadmin.local", "-q", command)

    def _run(self, program: str, *args: str) -> None:
        done = subprocess.run(
            [self._program(program), *args],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{program} failed:\n{done.stdout}{done.stderr}")

    def _environment(self) -> dict[str, str]:
        profile = {"KRB5_KDC_PROFILE": str(self._kdc_config)}
        return os.environ | self.environment | profile | {"PATH": _PATH}

    def _program(self, name: str) -> str:
        found = shutil.which(name, path=_PATH)
        assert found is not None, f"{name} is not installed"
        return found
