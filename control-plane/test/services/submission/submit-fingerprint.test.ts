import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type FingerprintedRequest,
  fingerprintOf,
  idempotencyKeyHash,
} from '../../../src/services/submission/submitted-pictures.ts';

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

/** As releases before finishing made them: a key that was used then replays. */
const RECORDED: readonly [FingerprintedRequest, string][] = [
  [base, 'e2045bf61f4f7cf39a240103e095388b6161d03f30dc64a14cccff9d2123e17c'],
  [
    { ...base, source: { imageSha256: 'ab'.repeat(32) } },
    '2f2f65bd231277235a8f76f68efb0db3dfe0fe6c4c47c020b2565ab9610d77b4',
  ],
  [
    { ...base, source: { imageSha256: 'ab'.repeat(32) }, outputFormat: 'jxl' },
    'b601962b68cc54b78d3e6bc74fefb26cbadcabacb6b27fbb11032fb2f5c57035',
  ],
  [
    {
      ...base,
      outputFormat: 'webp',
      callback: { url: 'https://b.example', secret: 's'.repeat(24) },
    },
    'da466a1643c73716b42807c2a29d87bd03126204b08356f3a7a884199253b088',
  ],
];

test('equal requests have one fingerprint, stable over releases', () => {
  assert.equal(fingerprintOf({ ...base }), fingerprintOf(base));
  for (const [request, recorded] of RECORDED) {
    assert.equal(fingerprintOf(request), recorded);
    const nothingAsked = { channels: 'rgba', finishing: undefined, background: undefined } as const;
    assert.equal(fingerprintOf({ ...request, ...nothingAsked }), recorded);
    assert.equal(fingerprintOf({ ...request, finishing: {} }), recorded);
  }
});

test('what is made of the cut-out counts, and not how it is written', () => {
  const white = { background: { kind: 'colour', rgba: 0xffffffff } } as const;
  const picture = { background: { kind: 'picture' } } as const;
  const requests: FingerprintedRequest[] = [
    base,
    { ...base, channels: 'alpha', finishing: {} },
    { ...base, finishing: white },
    { ...base, finishing: { background: { kind: 'colour', rgba: 0xfffffffe } } },
    { ...base, finishing: { ...white, scalePercent: 85 } },
    { ...base, finishing: { ...white, scalePercent: 85, position: 'original' } },
    { ...base, finishing: { outputWidth: 10 } },
    { ...base, finishing: { outputHeight: 10 } },
    { ...base, finishing: picture, background: { url: 'https://a.example/b' } },
    { ...base, finishing: picture, background: { url: 'https://a.example/c' } },
    { ...base, finishing: picture, background: { sha256: 'https://a.example/c' } },
  ];
  assert.equal(new Set(requests.map(fingerprintOf)).size, requests.length);
  const otherOrder = {
    scalePercent: 85,
    background: { rgba: 0xffffffff, kind: 'colour' },
  } as const;
  assert.equal(
    fingerprintOf({ ...base, finishing: otherOrder }),
    fingerprintOf({ ...base, finishing: { ...white, scalePercent: 85 } }),
  );
});

test('a key is stored as its SHA-256', () => {
  assert.equal(
    idempotencyKeyHash('abc'),
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  );
});
