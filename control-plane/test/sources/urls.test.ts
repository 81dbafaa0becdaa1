/** URLs of images and of callbacks: which texts and addresses are refused before a connection. */

import assert from 'node:assert/strict';
import ava, { type ExecutionContext } from 'ava';
import { ContractError } from '#contract/errors.ts';
import { rejectsWith, throwsWith } from '../../../test/support/throws.ts';
import { CallbackAddressCheck } from '../../src/sources/callback-url.ts';
import {
  OutgoingGuard,
  type OutgoingGuardOptions,
} from '../../src/sources/guard/outgoing-guard.ts';
import { isPublicAddress } from '../../src/sources/guard/public-address.ts';
import type { ResolveHost } from '../../src/sources/guard/resolve-host.ts';
import { requireImageUrl } from '../../src/sources/image-url.ts';

const test = ava.serial;

const POLICY = { fetchPorts: [80, 443], allowPrivateAddresses: false };
const TRUSTED = { fetchPorts: [80, 443], allowPrivateAddresses: true };

function assertRefused(t: ExecutionContext, text: string, policy = POLICY): void {
  throwsWith(
    t,
    () => requireImageUrl(text, policy),
    (error: { code: string; retryable: boolean; fieldErrors: { field: string }[] }) => {
      t.is(error.code, 'INVALID_IMAGE_SOURCE');
      t.false(error.retryable);
      t.deepEqual(
        error.fieldErrors.map(({ field }) => field),
        ['image_url'],
      );
      return true;
    },
  );
}

/** Every way to say a forbidden thing; the host ends up somewhere inside in each. */
const REFUSED: Record<string, readonly string[]> = {
  'no URL': ['', ' ', 'example.com/a.png', '127.0.0.1', '//example.com/a', 'http:///', 'http://'],
  'broken URL': ['http://[::1/', 'http://a b.com/', 'http://1.1.1.1:80:80/', 'http://a.com:65536/'],
  'control characters': [
    ...['https://example.com/\u0000', 'https://exa\tmple.com/', 'https://example.com/\n'],
    ...['https://example.com/\u007f', 'https://example.com/\u0085', '\rhttps://example.com/'],
  ],
  'other scheme': [
    ...['file:///etc/passwd', 'ftp://example.com/', 'gopher://example.com/', 'ws://example.com/'],
    ...['data:image/png;base64,AAAA', 'blob:http://example.com/1', 'javascript:alert(1)'],
    ...['jar:http://example.com!/a', 'unix:/var/run/docker.sock', 'view-source:http://a.com/'],
  ],
  userinfo: [
    ...['http://user@example.com/', 'http://user:word@example.com/', 'http://:word@example.com/'],
    ...['http://example.com@127.0.0.1/', 'http://127.0.0.1@example.com/'],
    ...['http://@example.com/', 'https://:@example.com/', ' HTTP:\\\\@example.com/', 'http:@a.com'],
  ],
  port: ['http://example.com:22/', 'http://example.com:0/', 'https://example.com:8443/'],
  'loopback, spelt': [
    ...['http://127.0.0.1/', 'http://127.1/', 'http://127.0.1/', 'http://2130706433/'],
    ...['http://0x7f000001/', 'http://0x7f.1/', 'http://0177.0.0.1/', 'http://017700000001/'],
    ...['http://127.0.0.1./', 'http://0/', 'http://0.0.0.0/', 'http://0x0/'],
    ...['http://①②⑦.⓪.⓪.①/', 'http://127。0。0。1/', 'http://%31%32%37.0.0.1/'],
    ...['http://127.0.0.1%2e/', 'http://12\t7.0.0.1/', 'http:127.0.0.1', 'http:\\\\127.0.0.1\\'],
    ...['http:////127.0.0.1/', 'http://127.0.0.1\\@example.com/', 'http://127.0.0.1#@a.com/'],
    ...[
      'http://127.0.0.1?@a.com/',
      ' http://127.0.0.1/ ',
      'HTTP://127.0.0.1/',
      'https://127.0.0.1/',
    ],
  ],
  'private and metadata': [
    ...['http://10.0.0.1/', 'http://172.16.0.1/', 'http://192.168.1.1/', 'http://3232235521/'],
    ...['http://169.254.169.254/latest/meta-data/', 'http://2852039166/', 'http://0xa9fea9fe/'],
    ...['http://168.63.129.16/', 'http://100.100.100.200/', 'http://255.255.255.255/'],
  ],
  IPv6: [
    ...['http://[::1]/', 'http://[::]/', 'http://[::ffff:127.0.0.1]/', 'http://[::ffff:7f00:1]/'],
    ...['http://[::127.0.0.1]/', 'http://[64:ff9b::7f00:1]/', 'http://[2002:7f00:1::]/'],
    ...['http://[fe80::1]/', 'http://[fe80::1%25eth0]/', 'http://[fd00:ec2::254]/'],
    ...['http://[0:0:0:0:0:0:0:1]/', 'http://[::1]./', 'http://[::1]:80/', 'http://[4000::1]/'],
  ],
  'a name that leads inside': [
    ...['http://localhost/', 'http://LOCALHOST/', 'http://localhost./', 'http://foo.localhost/'],
    ...['http://ｌｏｃａｌｈｏｓｔ/', 'http://metadata.google.internal/', 'http://metadata/'],
    ...['http://db/', 'http://kubernetes.default.svc.cluster.local/', 'http://printer.local./'],
    ...['http://router.home.arpa/', 'http://nas.lan/', 'http://wiki.intranet/'],
  ],
};

for (const [group, texts] of Object.entries(REFUSED)) {
  test(`image_url › refuses ${group}`, t => {
    for (const text of texts) assertRefused(t, text);
  });
}

test('image_url › refuses more than 2048 characters, and takes 2048', t => {
  const start = 'https://example.com/';
  assertRefused(t, start + 'a'.repeat(2049 - start.length));
  t.notThrows(() => requireImageUrl(start + 'a'.repeat(2048 - start.length), POLICY));
});

test('image_url › takes public hosts on the usual ports', t => {
  for (const text of [
    'http://example.com/a.png',
    'https://example.com/a.png?x=1#y',
    'http://example.com:443/',
    'https://example.com:80/',
    'https://example.com./a.png',
    'https://bücher.example/ü.png',
    'http://1.1.1.1/',
    'http://[2606:4700:4700::1111]/',
    // Really the host example.com: a backslash is a slash.
    'http://example.com\\@127.0.0.1/',
  ]) {
    t.notThrows(() => requireImageUrl(text, POLICY), text);
  }
});

test("image_url › follows the operator's ports", t => {
  const policy = { fetchPorts: [443, 8443], allowPrivateAddresses: false };
  t.notThrows(() => requireImageUrl('https://example.com:8443/', policy));
  assertRefused(t, 'http://example.com/', policy);
});

test('image_url › on a trusted network takes any address and port, but no other scheme and no userinfo', t => {
  for (const text of ['http://127.0.0.1:9000/a', 'http://[::1]:1/', 'http://minio:9000/a.png']) {
    t.notThrows(() => requireImageUrl(text, TRUSTED), text);
  }
  for (const text of ['file:///etc/passwd', 'http://user@127.0.0.1/', 'ftp://10.0.0.1/', '']) {
    assertRefused(t, text, TRUSTED);
  }
});

const PUBLIC = '93.184.215.14';
const OUTGOING = { fetchPorts: [80, 443], allowPrivateAddresses: false };

function checkOf(
  resolveHost: ResolveHost,
  { resolveMs, ...options }: Partial<OutgoingGuardOptions> & { resolveMs?: number } = {},
): CallbackAddressCheck {
  const guard = new OutgoingGuard({ policy: OUTGOING, resolveHost, ...options });
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
  test(`callback_url › refuses ${url} unasked`, async t => {
    await rejectsWith(t, checkOf(unasked).require(url, 'account'), isInvalidCallback);
  });
}

test('callback_url › one forbidden address among several is enough', async t => {
  for (const addresses of [['10.0.0.1'], [PUBLIC, '127.0.0.1'], [PUBLIC, '::1'], ['nonsense']]) {
    const check = checkOf(answering(...addresses));
    await rejectsWith(t, check.require('https://hooks.example.com/', 'account'), isInvalidCallback);
  }
});

test("callback_url › this machine's public addresses are forbidden too", async t => {
  const ownAddresses = () => new Set([PUBLIC]);
  const check = checkOf(answering(PUBLIC), { ownAddresses });
  await rejectsWith(t, check.require('https://hooks.example.com/', 'account'), isInvalidCallback);
  await rejectsWith(t, check.require(`https://${PUBLIC}/`, 'account'), isInvalidCallback);
});

test('callback_url › public addresses pass, on any port', async t => {
  const asked: string[] = [];
  const check = checkOf(async host => {
    asked.push(host);
    return [PUBLIC, '2606:4700:4700::1111'];
  });
  await check.require('https://hooks.example.com:8443/x', 'account');
  await check.require('https://Hooks.Example.com./x', 'account');
  await check.require(`https://${PUBLIC}/x`, 'account');
  t.deepEqual(asked, ['hooks.example.com', 'hooks.example.com']);
});

test('callback_url › a name that does not resolve passes: delivery resolves it again', async t => {
  await checkOf(answering()).require('https://hooks.example.com/', 'account');
  await t.notThrowsAsync(
    checkOf(() => Promise.reject(new Error('SERVFAIL'))).require(
      'https://hooks.example.com/',
      'account',
    ),
  );
});

test('callback_url › a name that resolves too late passes, and the question is withdrawn', async t => {
  let withdrawn = false;
  const silent: ResolveHost = (_host, signal) => {
    signal.addEventListener('abort', () => {
      withdrawn = true;
    });
    return new Promise(() => undefined);
  };
  // The clock of the question alone keeps no process awake.
  const awake = setInterval(() => undefined, 1000);
  t.teardown(() => clearInterval(awake));
  await checkOf(silent, { resolveMs: 20 }).require('https://hooks.example.com/', 'account');
  t.true(withdrawn);
});

test('callback_url › in a trusted network nothing is asked and everything passes', async t => {
  const policy = { ...POLICY, allowPrivateAddresses: true };
  await checkOf(unasked, { policy }).require('https://127.0.0.1:9000/', 'account');
  await t.notThrowsAsync(
    checkOf(unasked, { policy }).require('https://hooks.example.com/', 'account'),
  );
});

const NOT_PUBLIC = [
  // IPv4: first and last of each special block
  ...['0.0.0.0', '0.255.255.255', '10.0.0.0', '10.255.255.255', '100.64.0.0', '100.127.255.255'],
  ...['127.0.0.1', '127.255.255.255', '169.254.0.0', '169.254.169.254', '169.254.255.255'],
  ...['172.16.0.0', '172.31.255.255', '192.0.0.0', '192.0.0.192', '192.0.2.1', '192.88.99.1'],
  ...['192.168.0.0', '192.168.255.255', '198.18.0.0', '198.19.255.255', '198.51.100.7'],
  ...['203.0.113.255', '224.0.0.1', '239.255.255.250', '240.0.0.1', '255.255.255.255'],
  ...['168.63.129.16', '100.100.100.200'],
  // IPv6: loopback, IPv4 in all its disguises, local, multicast, documentation, unassigned
  ...['::', '::1', '::7f00:1', '::ffff:127.0.0.1', '::ffff:7f00:1', '::ffff:8.8.8.8'],
  ...['::ffff:0:7f00:1', '64:ff9b::7f00:1', '64:ff9b::a9fe:a9fe', '64:ff9b:1::a00:1'],
  ...['2002:7f00:1::', '2002:c0a8:101::1', '2001::1', '2001:10::1', '2001:20::1', '2001:1ff::1'],
  ...['::5efe:7f00:1', 'fe80::1', 'febf::1', 'fec0::1', 'fc00::1', 'fd00:ec2::254', 'ff02::1'],
  ...['ff0e::1', '100::1', '100:0:0:1::1', '5f00::1', '2001:db8::1', '3fff::1', '3fff:fff::1'],
  ...['4000::1', '1fff:ffff::1', 'fe80::1%eth0', '2606:4700:4700::1111%eth0'],
  // no addresses
  ...['', 'example.com', '127.1', '2130706433', '0x7f000001', '[::1]', '1.1.1.1 ', '1.1.1'],
];

const PUBLIC_ADDRESSES = [
  ...['1.1.1.1', '8.8.8.8', '9.255.255.255', '11.0.0.0', '93.184.215.14', '100.63.255.255'],
  ...['100.128.0.0', '172.15.255.255', '172.32.0.0', '192.0.1.1', '192.169.0.0', '198.17.255.255'],
  ...['198.20.0.0', '168.63.129.15', '168.63.129.17', '223.255.255.255'],
  ...['2606:4700:4700::1111', '2001:4860:4860::8888', '2001:200::1', '2003::1', '2a00::1'],
  ...['3ffe:ffff::1', '2001:db7:ffff::1', '2001:db9::1'],
];

for (const address of NOT_PUBLIC) {
  test(`addresses › ${address || 'nothing'} is not public`, t => t.false(isPublicAddress(address)));
}
for (const address of PUBLIC_ADDRESSES) {
  test(`addresses › ${address} is public`, t => t.true(isPublicAddress(address)));
}
