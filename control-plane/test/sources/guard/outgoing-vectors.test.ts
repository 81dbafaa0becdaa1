/**
 * Every way in that is known, against the outgoing guard, for image_url and callback_url: no
 * connection to a forbidden address. Twice: counted at an injected dialer, and, where this machine
 * lets us make a network namespace, by listeners behind real sockets. Nothing leaves the machine.
 */
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { CallbackAddressCheck } from '../../../src/sources/callback-url.ts';
import type { CreateConnector } from '../../../src/sources/guard/dial.ts';
import { GuardedFetch } from '../../../src/sources/guard/guarded-fetch.ts';
import { GuardedPost } from '../../../src/sources/guard/guarded-post.ts';
import { OutgoingGuard } from '../../../src/sources/guard/outgoing-guard.ts';
import type { ResolveHost } from '../../../src/sources/guard/resolve-host.ts';
import type { ProbeReport } from './namespace-probe.ts';

const VECTORS = path.join(import.meta.dirname, 'outgoing-vectors.json');
const PROBE = path.join(import.meta.dirname, 'namespace-probe.ts');
const vectors = JSON.parse(readFileSync(VECTORS, 'utf8')) as {
  literal: { group: string; url: string; expect: 'deny' | 'resolve' }[];
  dnsAnswers: string[];
  positiveControls: [string, ...string[]];
};
const POLICY = { fetchPorts: [80, 443], allowPrivateAddresses: false, allowHttpCallbacks: true };
const NEVER = new AbortController().signal;
const [GOOD] = vectors.positiveControls;

/** The guard with a dialer that connects to nothing and records the addresses it gets. */
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
        fetch.get(url, { accountId: 'account', signal: NEVER }, async () => undefined),
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

test('the operator’s networks › open no port that images may not name', async t => {
  const { dialled, ways } = bench(async () => ['10.1.0.1'], { allowedNetworks } as object);
  await t.throwsAsync(ways.image('http://10.1.0.1:6379/'));
  t.deepEqual(dialled, []);
});

/** Every address is this machine's in there, so every connection is counted. */
const SET_UP = [
  'ip link set lo up',
  'ip route add local default dev lo',
  'ip -6 route add local default dev lo',
].join(' && ');

/** The words that start a program in a network of its own; undefined where none can be made. */
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
  'in a network namespace › no listener at a forbidden address is connected to, and controls are',
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
