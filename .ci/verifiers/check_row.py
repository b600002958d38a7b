"""Checks a support row with the verifiers of secure-systems-lab and in-toto, which share no code with modelbench.

    python check_row.py RUN_FOLDER [PUBLIC_KEY]

Accepts the row as written, then changes single bytes of the payload, of the signature and of every subject digest:
each changed row must be refused. Exit status 0 only if all of that holds.
"""

import argparse
import base64
import copy
import hashlib
import json
import pathlib
import sys

from cryptography.hazmat.primitives import serialization
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
PREDICATE_TYPE = "urn:modelbench:support-row:v1"
PAYLOAD_SAMPLES = 400


class Refused(Exception):
    """The row does not hold, and the message says why."""


def fingerprint(public_key) -> str:
    """The name of a key as ssh-keygen -l prints it."""
    openssh = public_key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(openssh.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def verify(document: dict, key: SSlibKey) -> Statement:
    """The statement within an envelope, or Refused."""
    if document["payloadType"] != PAYLOAD_TYPE:
        raise Refused(f"payloadType is {document['payloadType']!r}")
    envelope = Envelope.from_dict(copy.deepcopy(document))
    try:
        envelope.verify([key], 1)
    except VerificationError as error:
        raise Refused(str(error)) from error
    message = json_format.Parse(envelope.payload, statement_pb2.Statement(), ignore_unknown_fields=False)
    statement = Statement.copy_from_pb(message)
    statement.validate()
    if message.predicate_type != PREDICATE_TYPE:
        raise Refused(f"predicateType is {message.predicate_type!r}")
    for subject in message.subject:
        if not subject.name or len(subject.digest["sha256"]) != 64:
            raise Refused(f"subject {subject} lacks a name or a sha256")
    return statement


def with_payload(document: dict, payload: bytes) -> dict:
    """The envelope with another payload and the old signature."""
    changed = copy.deepcopy(document)
    changed["payload"] = base64.b64encode(payload).decode()
    return changed


def tampered(document: dict, payload: bytes):
    """Yields (what was changed, envelope) for each change that must be refused."""
    step = max(1, len(payload) // PAYLOAD_SAMPLES)
    for at in sorted({*range(0, len(payload), step), len(payload) - 1}):
        yield "payload", with_payload(document, flipped(payload, at))
    for subject in json.loads(payload)["subject"]:
        start = payload.index(subject["digest"]["sha256"].encode())
        for at in range(start, start + 64):
            # Another hex digit: the statement stays well-formed, and only the signature can tell.
            digit = b"1" if payload[at : at + 1] == b"0" else b"0"
            yield "subject digest", with_payload(document, payload[:at] + digit + payload[at + 1 :])
    signature = base64.b64decode(document["signatures"][0]["sig"], validate=True)
    for at in range(len(signature)):
        changed = copy.deepcopy(document)
        changed["signatures"][0]["sig"] = base64.b64encode(flipped(signature, at)).decode()
        yield "signature", changed
    for keyid in ("", "SHA256:" + "A" * 43):
        changed = copy.deepcopy(document)
        changed["signatures"][0]["keyid"] = keyid
        yield "keyid", changed


def flipped(data: bytes, at: int) -> bytes:
    """The bytes with one bit of one byte changed."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_folder", type=pathlib.Path)
    parser.add_argument("public_key", type=pathlib.Path, nargs="?", help="default: public-key.pem in the run folder")
    args = parser.parse_args()

    pem = (args.public_key or args.run_folder / "public-key.pem").read_bytes()
    public_key = serialization.load_pem_public_key(pem)
    keyid = fingerprint(public_key)
    key = SSlibKey.from_crypto(public_key, keyid=keyid)
    document = json.loads((args.run_folder / "row.dsse.json").read_bytes())
    payload = base64.b64decode(document["payload"], validate=True)

    if document["signatures"][0]["keyid"] != keyid:
        raise Refused(f"keyid is {document['signatures'][0]['keyid']}, the key's fingerprint is {keyid}")
    message = verify(document, key).pb
    subjects = ", ".join(f"{s.name} {s.digest['sha256'][:12]}" for s in message.subject)
    print(f"accepted: label {message.predicate['label']}, subjects {subjects}, key {keyid}")

    refused: dict[str, int] = {}
    accepted: dict[str, int] = {}
    for what, changed in tampered(document, payload):
        try:
            verify(changed, key)
        except Refused:
            refused[what] = refused.get(what, 0) + 1
        else:
            accepted[what] = accepted.get(what, 0) + 1
    for what in ("payload", "subject digest", "signature", "keyid"):
        print(f"changed {what}: {refused.get(what, 0)} refused, {accepted.get(what, 0)} accepted")
    if accepted:
        print("FAILED: a changed row was accepted", file=sys.stderr)
        return 1
    if refused.get("payload", 0) < 200 or refused.get("signature", 0) < 60 or not refused.get("subject digest"):
        print("FAILED: too few changes were tried", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as error:
        print(f"FAILED: the row was refused: {error}", file=sys.stderr)
        sys.exit(1)
