// Checks a support row with the sigstore verifier for JavaScript, which shares no code with modelbench.
//
//     node check_row.mjs RUN_FOLDER [PUBLIC_KEY]
//
// Accepts the bundle as written, then changes single bytes of the payload, of the signature and of every subject
// digest: each changed bundle must be refused. Needs no network once installed. Exit status 0 only if all of that holds.

import { createHash, createPublicKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { bundleFromJSON } from '@sigstore/bundle';
import { Verifier, toSignedEntity, toTrustMaterial } from '@sigstore/verify';

const PAYLOAD_SAMPLES = 400;
const TYPE = 'application/vnd.in-toto+json';

/** The name of a P-256 key as ssh-keygen -l prints it. */
function fingerprint(publicKey) {
  const { crv, x, y } = publicKey.export({ format: 'jwk' });
  if (crv !== 'P-256') throw new Error(`the key is on the curve ${crv}, expected P-256`);
  const point = Buffer.concat([Buffer.from([4]), Buffer.from(x, 'base64url'), Buffer.from(y, 'base64url')]);
  const parts = [Buffer.from('ecdsa-sha2-nistp256'), Buffer.from('nistp256'), point].flatMap((part) => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(part.length);
    return [length, part];
  });
  return 'SHA256:' + createHash('sha256').update(Buffer.concat(parts)).digest('base64').replace(/=+$/, '');
}

/** Throws unless the bundle holds. */
function verify(json, verifier) {
  const bundle = bundleFromJSON(json);
  if (bundle.content.dsseEnvelope.payloadType !== TYPE) throw new Error('another payloadType');
  verifier.verify(toSignedEntity(bundle));
}

function flipped(bytes, at) {
  const changed = Buffer.from(bytes);
  changed[at] ^= 1;
  return changed;
}

/** Yields [what was changed, bundle] for each change that must be refused. */
function* tampered(json, payload) {
  const change = (edit) => {
    const changed = structuredClone(json);
    edit(changed.dsseEnvelope, changed);
    return changed;
  };
  const withPayload = (bytes) => change((envelope) => (envelope.payload = bytes.toString('base64')));
  const step = Math.max(1, Math.floor(payload.length / PAYLOAD_SAMPLES));
  for (let at = 0; at < payload.length; at += step) yield ['payload', withPayload(flipped(payload, at))];
  yield ['payload', withPayload(flipped(payload, payload.length - 1))];
  for (const { digest } of JSON.parse(payload).subject) {
    const start = payload.indexOf(digest.sha256);
    for (let at = start; at < start + 64; at++) {
      // Another hex digit: the statement stays well-formed, and only the signature can tell.
      const changed = Buffer.from(payload);
      changed.write(changed[at] === 0x30 ? '1' : '0', at);
      yield ['subject digest', withPayload(changed)];
    }
  }
  const signature = Buffer.from(json.dsseEnvelope.signatures[0].sig, 'base64');
  for (let at = 0; at < signature.length; at++) {
    yield ['signature', change((e) => (e.signatures[0].sig = flipped(signature, at).toString('base64')))];
  }
  yield ['key hint', change((_, bundle) => (bundle.verificationMaterial.publicKey.hint = 'SHA256:other'))];
}

function main(folder, keyPath) {
  const publicKey = createPublicKey(readFileSync(keyPath ?? join(folder, 'public-key.pem')));
  const keyid = fingerprint(publicKey);
  const findKey = (hint) => {
    if (hint !== keyid) throw new Error(`the hint is ${hint}, the key's fingerprint is ${keyid}`);
    return { publicKey, validFor: () => true };
  };
  const noRoot = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] };
  const thresholds = { ctlogThreshold: 0, tlogThreshold: 0, timestampThreshold: 0 };
  const verifier = new Verifier(toTrustMaterial(noRoot, findKey), thresholds);

  const json = JSON.parse(readFileSync(join(folder, 'row.sigstore.json'), 'utf8'));
  const payload = Buffer.from(json.dsseEnvelope.payload, 'base64');
  verify(json, verifier);
  console.log(`accepted: label ${JSON.parse(payload).predicate.label}, key ${keyid}`);

  const counts = { payload: [0, 0], 'subject digest': [0, 0], signature: [0, 0], 'key hint': [0, 0] };
  for (const [what, changed] of tampered(json, payload)) {
    let accepted = 1;
    try {
      verify(changed, verifier);
    } catch (error) {
      // Anything but the verifier's own answer would be a defect of this script.
      if (what !== 'key hint' && error.code !== 'SIGNATURE_ERROR') throw error;
      accepted = 0;
    }
    counts[what][accepted] += 1;
  }
  for (const [what, [refused, accepted]] of Object.entries(counts)) {
    console.log(`changed ${what}: ${refused} refused, ${accepted} accepted`);
  }
  if (Object.values(counts).some(([, accepted]) => accepted > 0)) throw new Error('a changed row was accepted');
  if (counts.payload[0] < 200 || counts.signature[0] < 60 || counts['subject digest'][0] === 0) {
    throw new Error('too few changes were tried');
  }
}

const [folder, keyPath, ...rest] = process.argv.slice(2);
if (folder === undefined || rest.length > 0) {
  console.error('usage: node check_row.mjs RUN_FOLDER [PUBLIC_KEY]');
  process.exit(2);
}
try {
  main(folder, keyPath);
} catch (error) {
  console.error(`FAILED: ${error.message}`);
  process.exit(1);
}
