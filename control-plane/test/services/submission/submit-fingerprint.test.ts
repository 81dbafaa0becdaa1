import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type FingerprintedRequest,
  fingerprintOf,
  idempotencyKeyHash,
} from '../../../src/services/submission/submit-fingerprint.ts';

const base: FingerprintedRequest = {
  source: { url: 'https://a.example/x' },
  outputFormat: 'png',
  callback: undefined,
};

test('every field that counts changes the fingerprint', () => {
  const requests: FingerprintedRequest[] = [
    base,
    { ...base, outputFormat: 'webp' },
    { ...base, source: { url: 'https://a.example/y' } },
    { ...base, source: { imageSha256: 'https://a.example/x' } },
    { ...base, callback: { url: 'https://b.example', secret: 's'.repeat(24) } },
    { ...base, callback: { url: 'https://b.example', secret: 't'.repeat(24) } },
    { ...base, callback: { url: 'https://c.example', secret: 's'.repeat(24) } },
  ];
  assert.equal(new Set(requests.map(fingerprintOf)).size, requests.length);
  for (const request of requests) assert.match(fingerprintOf(request), /^[0-9a-f]{64}$/);
});

test('no value can pass for another field', () => {
  const url = 'https://a.example/x\noutput_format:4:webp';
  const forged = { ...base, source: { url } };
  assert.notEqual(fingerprintOf(forged), fingerprintOf({ ...base, outputFormat: 'webp' }));
});

test('equal requests have one fingerprint, stable over releases', () => {
  assert.equal(fingerprintOf({ ...base }), fingerprintOf(base));
  assert.equal(
    fingerprintOf(base),
    'e2045bf61f4f7cf39a240103e095388b6161d03f30dc64a14cccff9d2123e17c',
  );
});

test('a key is stored as its SHA-256', () => {
  assert.equal(
    idempotencyKeyHash('abc'),
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  );
});
