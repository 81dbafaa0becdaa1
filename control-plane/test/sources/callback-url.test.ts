import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ContractError } from '#contract/errors.ts';
import { CallbackAddressCheck } from '../../src/sources/callback-url.ts';
import {
  OutgoingGuard,
  type OutgoingGuardOptions,
} from '../../src/sources/guard/outgoing-guard.ts';
import type { ResolveHost } from '../../src/sources/guard/resolve-host.ts';

const PUBLIC = '93.184.215.14';
const POLICY = { fetchPorts: [80, 443], allowPrivateAddresses: false };

function checkOf(
  resolveHost: ResolveHost,
  { resolveMs, ...options }: Partial<OutgoingGuardOptions> & { resolveMs?: number } = {},
): CallbackAddressCheck {
  const guard = new OutgoingGuard({ policy: POLICY, resolveHost, ...options });
  return new CallbackAddressCheck(guard, resolveMs);
}

const answering =
  (...addresses: string[]): ResolveHost =>
  async () =>
    addresses;

const unasked: ResolveHost = () => assert.fail('the resolver was asked');

function isInvalidCallback(error: unknown): boolean {
  assert.ok(error instanceof ContractError, String(error));
  assert.equal(error.code, 'INVALID_CALLBACK');
  assert.equal(error.fieldErrors[0]?.field, 'callback_url');
  return true;
}

for (const url of [
  'https://127.0.0.1/',
  'https://2130706433/',
  'https://0x7f.1/',
  'https://10.0.0.1:8443/',
  'https://169.254.169.254/latest/meta-data',
  'https://[::1]/',
  'https://[::ffff:127.0.0.1]/',
  'https://[fd00::1]/',
  'https://[64:ff9b::7f00:1]/',
  'https://localhost/',
  'https://LOCALHOST./',
  'https://intranet/',
  'https://hooks.internal/',
]) {
  test(`refuses ${url} unasked`, async () => {
    await assert.rejects(checkOf(unasked).require(url, 'account'), isInvalidCallback);
  });
}

test('one forbidden address among several is enough', async () => {
  for (const addresses of [['10.0.0.1'], [PUBLIC, '127.0.0.1'], [PUBLIC, '::1'], ['nonsense']]) {
    const check = checkOf(answering(...addresses));
    await assert.rejects(check.require('https://hooks.example.com/', 'account'), isInvalidCallback);
  }
});

test("this machine's public addresses are forbidden too", async () => {
  const ownAddresses = () => new Set([PUBLIC]);
  const check = checkOf(answering(PUBLIC), { ownAddresses });
  await assert.rejects(check.require('https://hooks.example.com/', 'account'), isInvalidCallback);
  await assert.rejects(check.require(`https://${PUBLIC}/`, 'account'), isInvalidCallback);
});

test('public addresses pass, on any port', async () => {
  const asked: string[] = [];
  const check = checkOf(async host => {
    asked.push(host);
    return [PUBLIC, '2606:4700:4700::1111'];
  });
  await check.require('https://hooks.example.com:8443/x', 'account');
  await check.require('https://Hooks.Example.com./x', 'account');
  await check.require(`https://${PUBLIC}/x`, 'account');
  assert.deepEqual(asked, ['hooks.example.com', 'hooks.example.com']);
});

test('a name that does not resolve passes: delivery resolves it again', async () => {
  await checkOf(answering()).require('https://hooks.example.com/', 'account');
  await checkOf(() => Promise.reject(new Error('SERVFAIL'))).require(
    'https://hooks.example.com/',
    'account',
  );
});

test('a name that resolves too late passes, and the question is withdrawn', async () => {
  let withdrawn = false;
  const silent: ResolveHost = (_host, signal) => {
    signal.addEventListener('abort', () => {
      withdrawn = true;
    });
    return new Promise(() => undefined);
  };
  await checkOf(silent, { resolveMs: 20 }).require('https://hooks.example.com/', 'account');
  assert.equal(withdrawn, true);
});

test('in a trusted network nothing is asked and everything passes', async () => {
  const policy = { ...POLICY, allowPrivateAddresses: true };
  await checkOf(unasked, { policy }).require('https://127.0.0.1:9000/', 'account');
  await checkOf(unasked, { policy }).require('https://hooks.example.com/', 'account');
});
