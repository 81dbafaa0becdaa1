import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { OVERLONG } from '@matting/http/body-fields.ts';
import { GuardedFetch } from '@matting/http/outgoing/guarded-fetch.ts';
import { GuardedPost } from '@matting/http/outgoing/guarded-post.ts';
import { isPublicAddress } from '@matting/http/outgoing/open-addresses.ts';
import { type CreateConnector, OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import type { ResolveHost } from '@matting/http/outgoing/resolve-host.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { rejectsWith, throwsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import { requireImageUrl } from '../submission/image-url.ts';
import type { ProbeReport } from '../test/namespace-probe.ts';
import { CallbackAddressCheck } from './callback-check.ts';

const test = ava.serial;

const VECTORS = path.join(import.meta.dirname, 'outgoing-vectors.json');
const PROBE = path.join(import.meta.dirname, '../test/namespace-probe.ts');
const vectors = JSON.parse(readFileSync(VECTORS, 'utf8')) as {
  literal: { group: string; url: string; expect: 'deny' | 'resolve' }[];
  dnsAnswers: string[];
  positiveControls: [string, ...string[]];
};
const NEVER = new AbortController().signal;
const [GOOD] = vectors.positiveControls;
const POLICY = { fetchPorts: [80, 443], allowPrivateAddresses: false, allowHttpCallbacks: true };
const TRUSTED = { ...POLICY, allowPrivateAddresses: true };
const DENIED = Map.groupBy(
  vectors.literal.filter(({ expect }) => expect === 'deny'),
  ({ group }) => group,
);

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
};

for (const [group, denied] of DENIED) {
  test(`image_url › refuses ${group}`, t => {
    for (const { url } of denied) assertRefused(t, url);
  });
}
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

test('image_url › that is a picture itself names the field for it, however long it is', t => {
  const picture = 'data:image/jpeg;base64,';
  for (const text of [`${picture}AAAA`, picture + 'A'.repeat(4000), OVERLONG] as const) {
    throwsWith(t, () => requireImageUrl(text, POLICY), { message: /image_base64/ });
  }
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
    // The host is example.com: a backslash counts as a slash.
    'http://example.com\\@127.0.0.1/',
  ]) {
    t.notThrows(() => requireImageUrl(text, POLICY), text);
  }
});

test("image_url › follows the operator's ports", t => {
  const policy = { ...POLICY, fetchPorts: [443, 8443] };
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

function checkOf(
  resolveHost: ResolveHost,
  {
    resolveMs,
    ...options
  }: Partial<ConstructorParameters<typeof OutgoingGuard>[0]> & { resolveMs?: number } = {},
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

test('callback_url › refuses internal hosts by their text, without a lookup', async t => {
  for (const [group, denied] of DENIED) {
    if (!/^(ipv|link-local|names)/.test(group)) continue;
    for (const { url } of denied) {
      if (!URL.canParse(url)) continue;
      await rejectsWith(t, checkOf(unasked).require(url, 'account'), isInvalidCallback);
    }
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
  // A query's timer alone keeps no process awake.
  const awake = setInterval(() => undefined, 1000);
  t.teardown(() => clearInterval(awake));
  await checkOf(silent, { resolveMs: 20 }).require('https://hooks.example.com/', 'account');
  t.true(withdrawn);
});

test('callback_url › in a trusted network nothing is asked and everything passes', async t => {
  await checkOf(unasked, { policy: TRUSTED }).require('https://127.0.0.1:9000/', 'account');
  await t.notThrowsAsync(
    checkOf(unasked, { policy: TRUSTED }).require('https://hooks.example.com/', 'account'),
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
  // IPv6: loopback, forms of IPv4, local, multicast, documentation, unassigned
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

function bench(resolveHost: ResolveHost, policy: Partial<typeof POLICY> & object = {}) {
  const dialled: string[] = [];
  const createConnector: CreateConnector = addresses => (_options, callback) => {
    dialled.push(...addresses);
    callback(new Error('this dialer connects to nothing'), null);
  };
  const all = { ...POLICY, ...policy };
  const guard = new OutgoingGuard({
    policy: all,
    resolveHost,
    createConnector,
    ownAddresses: () => new Set(['198.0.0.77']),
  });
  const fetch = new GuardedFetch(guard);
  const post = new GuardedPost(guard, all);
  const check = new CallbackAddressCheck(guard);
  return {
    dialled,
    ways: {
      image: (url: string) =>
        fetch.get(
          url,
          { accountId: 'account', signal: NEVER, bytesMax: 1000 },
          async () => undefined,
        ),
      callback: (url: string) =>
        post.post(url, { accountId: 'account', headers: {}, body: Buffer.alloc(2) }, NEVER),
      submission: (url: string) => check.require(url, 'account'),
    },
  };
}

for (const group of new Set(vectors.literal.map(vector => vector.group))) {
  test(`counted at the dialer › connects to no forbidden address: ${group}`, async t => {
    const { dialled, ways } = bench(async () => [GOOD]);
    for (const { url, expect } of vectors.literal.filter(vector => vector.group === group)) {
      await t.throwsAsync(ways.image(url));
      if (group !== 'port') await t.throwsAsync(ways.callback(url));
      if (expect === 'deny') t.deepEqual(dialled.splice(0), [], url);
      else t.deepEqual(new Set(dialled.splice(0)), new Set([GOOD]), url);
    }
  });
}

test('counted at the dialer › connects to no forbidden address of a name, whatever its other addresses are', async t => {
  for (const bad of vectors.dnsAnswers) {
    for (const answers of [[bad], [GOOD, bad], [bad, GOOD]]) {
      const { dialled, ways } = bench(async () => answers);
      for (const way of Object.values(ways)) {
        await t.throwsAsync(way('https://a.example.com/'), undefined, bad);
      }
      t.deepEqual(dialled, [], bad);
    }
  }
});

test('counted at the dialer › reaches the public ones', async t => {
  for (const address of vectors.positiveControls) {
    const { dialled, ways } = bench(async () => [address]);
    const literal = address.includes(':') ? `https://[${address}]/` : `https://${address}/`;
    for (const url of ['https://a.example.com/', literal]) {
      await t.throwsAsync(ways.image(url));
      await t.throwsAsync(ways.callback(url));
      await ways.submission(url);
    }
    t.deepEqual(dialled, Array(4).fill(address));
  }
});

const allowedNetworks = ['10.1.0.0/16', 'fd00:1::/32', '198.0.0.77/32'];
const reaches = async (address: string, networks = allowedNetworks) => {
  const { dialled, ways } = bench(async () => [address], { allowedNetworks: networks } as object);
  await ways.image('http://hooks.internal/').catch(() => undefined);
  await ways.callback('http://db/').catch(() => undefined);
  return dialled.length;
};

test('the operator’s networks › are open, and nothing beside them', async t => {
  for (const inside of ['10.1.0.1', '10.1.255.255', 'fd00:1::9', '::ffff:10.1.2.3', GOOD]) {
    t.is(await reaches(inside), 2, inside);
  }
  for (const outside of ['10.2.0.1', '10.0.255.255', 'fd00:2::9', '127.0.0.1', '::1', 'x', '']) {
    t.is(await reaches(outside), 0, outside);
  }
});

test('the operator’s networks › may hold this machine, which is closed otherwise, however public', async t => {
  t.is(await reaches('198.0.0.77'), 2);
  t.is(await reaches('198.0.0.77', ['10.1.0.0/16']), 0);
});

test('the operator’s networks › make localhost this machine, which no resolver names', async t => {
  const dialledFor = async (networks: readonly string[]) => {
    const resolver = () => Promise.reject(new Error('a resolver was asked'));
    const { dialled, ways } = bench(resolver, { allowedNetworks: networks } as object);
    await t.throwsAsync(ways.callback('http://localhost:8095/'));
    await t.throwsAsync(ways.image('http://app.localhost/'));
    return dialled;
  };
  t.deepEqual(await dialledFor(['10.1.0.0/16']), []);
  t.deepEqual((await dialledFor(['127.0.0.0/8'])).length, 2);
});

test('the operator’s networks › open no port that images may not name', async t => {
  const { dialled, ways } = bench(async () => ['10.1.0.1'], { allowedNetworks } as object);
  await t.throwsAsync(ways.image('http://10.1.0.1:6379/'));
  t.deepEqual(dialled, []);
});

/** In that namespace every address is local, so every connection is counted. */
const SET_UP = [
  'ip link set lo up',
  'ip route add local default dev lo',
  'ip -6 route add local default dev lo',
].join(' && ');

function namespaceCommand(): readonly [string, ...string[]] | undefined {
  const ways: readonly [string, ...string[]][] = [
    ['unshare', '--net'],
    ['unshare', '--net', '--map-root-user'],
  ];
  return ways.find(([command, ...args]) => {
    const made = spawnSync(command, [...args, 'sh', '-c', SET_UP], { stdio: 'ignore' });
    return made.status === 0;
  });
}

const namespace = namespaceCommand();
if (namespace === undefined) {
  console.error('NO NETWORK NAMESPACE here (unshare, ip): counted at an injected dialer alone');
}

test.skipIf(namespace === undefined)(
  'in a network namespace › downloads connect to no forbidden address, and do connect to the allowed ones',
  async t => {
    const [command, ...args] = namespace!;
    const program = `${SET_UP} && exec "$0" "$@"`;
    const probe = [process.execPath, PROBE, VECTORS];
    const { stdout } = await promisify(execFile)(command, [...args, 'sh', '-c', program, ...probe]);
    const report = JSON.parse(stdout) as ProbeReport;
    t.deepEqual([report.forbidden, report.passed], [[], []]);
    t.true(report.tried > 1000, String(report.tried));
    for (const address of vectors.positiveControls) {
      t.deepEqual(report.controls[address], { image: 2, callback: 2 }, address);
    }
    t.is(report.countedUnguarded, 5, 'the counting works');
  },
);
