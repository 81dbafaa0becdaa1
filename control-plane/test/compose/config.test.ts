/** Needs: object-storage, removebg, portal. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFile, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { loadConfig } from '@matting/core/config.ts';
import { loadDatabaseConfig } from '@matting/core/settings.ts';
import {
  loadOrCreateSecretsKey,
  requireSameSecretsKey,
  SecretsKeyError,
} from '@matting/core/test/internals.ts';
import { ConfigError } from '@matting/program/config-error.ts';
import type { Environment } from '@matting/program/env.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import { growThreadPool } from '../../config.ts';
import { PACKAGES } from '../../packages.ts';

const test = ava.serial;

const TOKEN = 'a-token-of-some-length';
const MYSQL = 'mysql://matting:pass-word@db.internal:3306/matting';
const KEY_HEX = 'ab'.repeat(32);

test('has threads for the names of callers where the system resolves them', t => {
  const env = (more: Environment = {}) => ({ MATTING_NODE_TOKEN: TOKEN, ...more });
  const lookups = (more: Environment) => {
    const grown = env(more);
    growThreadPool(grown);
    return loadConfig(grown, PACKAGES).systemLookupsMax;
  };
  const trusted = { MATTING_ALLOW_PRIVATE_ADDRESSES: 'true' };
  t.is(lookups({}), 2);
  t.is(lookups(trusted), 32);
  t.is(lookups({ MATTING_ALLOWED_NETWORKS: '10.0.0.0/8' }), 32);
  t.is(lookups({ ...trusted, UV_THREADPOOL_SIZE: '16' }), 6);
  t.is(lookups({ ...trusted, UV_THREADPOOL_SIZE: '1' }), 1);
});

function variablesOf(env: Environment): string[] {
  try {
    loadConfig(env, PACKAGES);
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    for (const value of Object.values(env)) {
      if (value !== undefined && value.length > 3) assert.ok(!error.message.includes(value));
    }
    return error.problems.map(problem => problem.variable);
  }
  return [];
}

const of = (env: Environment) => loadConfig({ MATTING_NODE_TOKEN: TOKEN, ...env }, PACKAGES);
const everywhere = { MATTING_HOST: '0.0.0.0' };

test('loadConfig › hosts › of the registry and the metrics are loopback, whatever the public one is', t => {
  const { host, registryHost, metricsHost } = of(everywhere);
  t.deepEqual([host, registryHost, metricsHost], ['0.0.0.0', '127.0.0.1', '127.0.0.1']);
});

test('loadConfig › hosts › that keep nodes of other machines out, or let strangers in, are warned of', t => {
  const registry = { MATTING_REGISTRY_HOST: '10.0.0.1' };
  const tls = { MATTING_TLS_CERT_FILE: '/cert.pem', MATTING_TLS_KEY_FILE: '/key.pem' };
  const variables = (env: Environment) =>
    of(env).warnings.map(line => line.slice(0, line.indexOf(' ')));
  t.deepEqual(variables({}), []);
  t.deepEqual(variables(everywhere), ['MATTING_REGISTRY_HOST']);
  t.deepEqual(variables({ ...everywhere, MATTING_REGISTRY_HOST: '127.0.0.1' }), []);
  t.deepEqual(variables(registry), ['MATTING_REGISTRY_HOST']);
  t.deepEqual(variables({ ...registry, ...tls }), []);
  const metrics = { MATTING_METRICS_HOST: '::', MATTING_OPERATOR_KEY: 'k'.repeat(32) };
  t.deepEqual(variables(metrics), ['MATTING_METRICS_HOST']);
  t.true(of(metrics).warnings.every(line => !line.includes('kkk')));
});

test('loadConfig › names every variable that is wrong', t => {
  const wrong = {
    MATTING_PORT: '70000',
    MATTING_BASE_URL: 'ftp://files.example.com',
    MATTING_DATABASE_URL: 'postgres://secret-user@host/db',
    MATTING_STORAGE_URL: 's3://bucket-name/prefix?secret=1',
    MATTING_SYNC_WAIT_MS: '-1',
    MATTING_FETCH_PORTS: '80,0',
    MATTING_ALLOW_PRIVATE_ADDRESSES: 'maybe',
    MATTING_LOG_LEVEL: 'loud',
    MATTING_NODE_TOKEN: 'short',
    MATTING_OPERATOR_KEY: 'long enough for a token',
    MATTING_SECRETS_KEY: 'not-a-key-at-all',
    MATTING_SECRETS_KEY_PREVIOUS: 'nor-is-this-one',
    MATTING_ALLOWED_NETWORKS: '10.0.0.0/8,10.0.0.1',
    MATTING_WEBHOOK_SCHEDULE_MS: '0,5s',
  };
  t.deepEqual(variablesOf(wrong).toSorted(), Object.keys(wrong).toSorted());
});

const bucket = { MATTING_STORAGE_URL: 's3://a-bucket' };
const day = String(86_400_000);
const networks = ['10.0.0.0/33', '10.0.0.0', 'fd00::/129', 'fe80::%1/64', 'db.local/8', '/8'];
const wrong: readonly (readonly [string, values: readonly string[], beside?: Environment])[] = [
  // Redirects need a storage that signs URLs.
  ['MATTING_RESULT_DOWNLOADS', ['redirect']],
  ['MATTING_RESULT_DOWNLOADS', ['both'], bucket],
  // A schedule's attempts must fall within a day.
  ['MATTING_WEBHOOK_SCHEDULE_MS', [day, `0,${day}`, '0,,5', '-1', '0,1.5']],
  ['MATTING_ALLOWED_NETWORKS', networks],
  ['MATTING_MODELS_OFFERED', ['a,,b', 'a b', '../a', 'a/b', 'a'.repeat(65)]],
  // Already used by another port.
  ['MATTING_METRICS_PORT', ['8080']],
  // Links start with a base URL.
  ['MATTING_BASE_URL', ['https://user:pw@x', 'https://x/?a=b', 'https://x/#a']],
];
for (const [variable, values, beside = {}] of wrong) {
  for (const value of values) {
    test(`loadConfig › refuses ${variable}=${value} beside ${JSON.stringify(beside)}`, t => {
      const env = { MATTING_NODE_TOKEN: TOKEN, ...beside, [variable]: value };
      t.deepEqual(variablesOf(env), [variable]);
    });
  }
}

test('loadConfig › takes downloads, a schedule, models and networks as they are documented', t => {
  const redirect = { ...bucket, MATTING_RESULT_DOWNLOADS: 'redirect' };
  t.is(of(redirect).resultDownloads, 'redirect');
  t.is(of({}).resultDownloads, 'stream');
  const schedule = of({ MATTING_WEBHOOK_SCHEDULE_MS: '0, 200,400' }).webhookScheduleMs;
  t.deepEqual(schedule, [0, 200, 400]);
  t.deepEqual(of({}).webhookScheduleMs.slice(0, 3), [0, 5000, 300_000]);
  t.deepEqual(of({}).modelsOffered, []);
  const offered = of({ MATTING_MODELS_OFFERED: 'best, isnet,best' }).modelsOffered;
  t.deepEqual(offered, ['best', 'isnet']);
  const { allowedNetworks } = of({ MATTING_ALLOWED_NETWORKS: '10.1.0.0/16, FD00:1::/032' });
  t.deepEqual(allowedNetworks, ['10.1.0.0/16', 'fd00:1::/32']);
});

test('loadConfig › asks for the node token', t => {
  t.deepEqual(variablesOf({}), ['MATTING_NODE_TOKEN']);
});

test('loadConfig › asks for the secrets key with any database but SQLite', t => {
  const env = { MATTING_NODE_TOKEN: TOKEN, MATTING_DATABASE_URL: MYSQL };
  t.deepEqual(variablesOf(env), ['MATTING_SECRETS_KEY']);
  const config = loadConfig({ ...env, MATTING_SECRETS_KEY: KEY_HEX }, PACKAGES);
  t.is(config.databaseUrl, MYSQL);
  t.is(config.secretsKey?.toString('hex'), KEY_HEX);
});

test('loadConfig › takes any free ports, and asks then for the base URL', t => {
  const chosen = { MATTING_PORT: '0', MATTING_REGISTRY_PORT: '0', MATTING_METRICS_PORT: '0' };
  const env = { MATTING_NODE_TOKEN: TOKEN, ...chosen };
  t.deepEqual(variablesOf({ ...env, MATTING_BASE_URL: 'http://x' }), []);
  t.deepEqual(variablesOf(env), ['MATTING_BASE_URL']);
});

test('loadConfig › has the defaults that the documentation gives', t => {
  const config = loadConfig(
    { MATTING_NODE_TOKEN: TOKEN, MATTING_DATA_DIR: '/srv/matting' },
    PACKAGES,
  );
  t.is(config.baseUrl, 'http://127.0.0.1:8080');
  t.is(config.databaseUrl, 'sqlite:/srv/matting/matting.sqlite');
  t.is(config.storageUrl, 'file:///srv/matting');
  t.is(config.secretsKey, undefined);
  t.deepEqual([config.registryPort, config.metricsPort], [50_050, 9464]);
  t.deepEqual(config.fetchPorts, [80, 443]);
  t.true(config.readsRequireIdempotencyKey);
  t.false(config.allowPrivateAddresses);
});

test('loadConfig › has a fleet that sleeps only if the operator asks for one', t => {
  t.deepEqual([of({}).onDemand, of({ MATTING_NODES_ON_DEMAND: 'true' }).onDemand], [false, true]);
});

test('loadConfig › makes links that can be followed', t => {
  const { baseUrl } = of({ MATTING_HOST: '0.0.0.0', MATTING_PORT: '90' });
  t.is(baseUrl, 'http://127.0.0.1:90');
  t.is(of({ MATTING_HOST: '::1' }).baseUrl, 'http://[::1]:8080');
  const given = of({ MATTING_BASE_URL: 'https://x.example/api//' });
  t.is(given.baseUrl, 'https://x.example/api');
});

test('loadDatabaseConfig › needs nothing but the database', t => {
  t.deepEqual(loadDatabaseConfig({ MATTING_DATABASE_URL: MYSQL }).databaseUrl, MYSQL);
  t.is(
    loadDatabaseConfig({ MATTING_DATABASE_URL: 'sqlite:///var/a.db' }).databaseUrl,
    'sqlite:/var/a.db',
  );
  t.throws(() => loadDatabaseConfig({ MATTING_DATABASE_URL: 'mysql://host' }), {
    instanceOf: ConfigError,
  });
});

test('the secrets key › is made once, readable by its owner alone, also by several starts at once', async t => {
  const directory = await temporaryFolder(t);
  const [first, ...others] = await Promise.all(
    [1, 2, 3].map(() => loadOrCreateSecretsKey(directory)),
  );
  t.is(first?.length, 32);
  for (const key of others) t.deepEqual(key, first);
  t.deepEqual(await loadOrCreateSecretsKey(directory), first);
  const { mode } = await stat(path.join(directory, 'secrets.key'));
  t.is(mode & 0o777, 0o600);
});

test('the secrets key › is not replaced where its file is damaged', async t => {
  const directory = await temporaryFolder(t);
  const file = path.join(directory, 'secrets.key');
  await writeFile(file, 'half a k');
  await t.throwsAsync(loadOrCreateSecretsKey(directory), { instanceOf: SecretsKeyError });
  t.is(await readFile(file, 'utf8'), 'half a k');
});

test('the secrets key › of another replica is found out, and so is an altered canary', async t => {
  let row: { keyId: string; ciphertext: Uint8Array } | undefined;
  const store: Parameters<typeof requireSameSecretsKey>[0] = {
    establish: async candidate => {
      row ??= candidate;
      return row;
    },
    replace: async (keyId, canary) => {
      if (row?.keyId === keyId) row = canary;
    },
  };
  const key = randomBytes(32);
  await requireSameSecretsKey(store, key);
  await requireSameSecretsKey(store, key);
  await t.throwsAsync(requireSameSecretsKey(store, randomBytes(32)), {
    instanceOf: SecretsKeyError,
  });
  assert.ok(row);
  const altered = Buffer.from(row.ciphertext);
  altered.writeUInt8(altered.readUInt8(altered.length - 1) ^ 1, altered.length - 1);
  const sound = row;
  row = { ...row, ciphertext: altered };
  await t.throwsAsync(requireSameSecretsKey(store, key), { instanceOf: SecretsKeyError });
  row = sound;
  const next = randomBytes(32);
  await t.throwsAsync(requireSameSecretsKey(store, next, randomBytes(32)), {
    instanceOf: SecretsKeyError,
  });
  await requireSameSecretsKey(store, next, key);
  await requireSameSecretsKey(store, next);
  await requireSameSecretsKey(store, next, key);
  await t.throwsAsync(requireSameSecretsKey(store, key), { instanceOf: SecretsKeyError });
});
