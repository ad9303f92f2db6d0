"""An authority of a test's own, and certificates that it signs for this machine."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFE = timedelta(days=1)


class Authority:
    """Its own certificate is in `file`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory, self._name = directory, named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        uses = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = self._sign(self._name, self._key.public_key(), constraints, uses)
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(pem(certificate))

    def issue(
        self,
        name: str,
        *,
        address: str = "127.0.0.1",
        password: str = "",
        life: tuple[timedelta, timedelta] = (-LIFE, LIFE),
    ) -> Path:
        """A PEM file with a key, encrypted by a password if there is one, and its certificate,
        which lives between these times from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        holder = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        constraints = x509.BasicConstraints(ca=False, path_length=None)
        certificate = self._sign(named(name), key.public_key(), constraints, holder, life=life)
        hidden = (
            serialization.BestAvailableEncryption(password.encode())
            if password
            else serialization.NoEncryption()
        )
        form = serialization.PrivateFormat.PKCS8
        file = self._directory / f"{name}.pem"
        file.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, form, hidden) + pem(certificate)
        )
        return file

    def _sign(
        self,
        holder: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *extensions: x509.ExtensionType,
        life: tuple[timedelta, timedelta] = (-LIFE, LIFE),
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(holder)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + life[0])
            .not_valid_after(now + life[1])
        )
        own = x509.SubjectKeyIdentifier.from_public_key(key)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for each in (*extensions, own, issuer):
            builder = builder.add_extension(each, isinstance(each, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
