/**
 * `keys create|set|rotate|revoke|list`. The key itself is printed once, by create and rotate, and
 * is stored nowhere.
 */

import type { Command } from 'commander';
import { requireAccount } from '../accounts/operate-accounts.ts';
import { parseName } from '../cli/arguments.ts';
import { type CliContext, CommandError, table } from '../cli/context.ts';
import { isoTime } from '../time-format.ts';
import { apiKeyIdOf } from './api-key-rows.ts';
import type { ApiKey } from './api-key-store.ts';
import { addKeyOptions, type KeyOptions, parseOverlap, policyWith } from './key-options.ts';
import { KEYS_ALIVE_MAX, KEYS_EVER_MAX, type RotationOverlap } from './key-policy.ts';
import { keyView, ManageKeys } from './manage-keys.ts';

const OPERATOR = { kind: 'operator' } as const;
const KEEP_IT = 'Keep it: it is stored as a hash and cannot be shown again.';

export function addKeyCommands(program: Command, context: CliContext): void {
  const keys = program
    .command('keys')
    .description('create, change, rotate, revoke and list API keys');
  const create = keys
    .command('create')
    .description('create a key of an account and print it, this once')
    .requiredOption('--account <account>', 'name or id')
    .option('--name <name>', 'what the key is for', parseName);
  addKeyOptions(create).action((options: KeyOptions & { account: string; name?: string }) =>
    createKey(context, options),
  );
  const set = keys
    .command('set')
    .description('change what a key may do, within a second everywhere')
    .argument('<key>', 'id or prefix, as list shows it')
    .option('--name <name>', 'what the key is for', parseName);
  addKeyOptions(set).action((key: string, options: KeyOptions & { name?: string }) =>
    setKey(context, key, options),
  );
  keys
    .command('rotate')
    .description('give a key another secret and print it, this once')
    .argument('<key>', 'id or prefix, as list shows it')
    .option('--overlap <time>', 'how long the old secret goes on', parseOverlap, '24h')
    .action((key: string, options: { overlap: RotationOverlap }) =>
      rotateKey(context, key, options),
    );
  keys
    .command('revoke')
    .description('end a key everywhere within a second; its open jobs are finished')
    .argument('<key>', 'id or prefix, as list shows it')
    .action((key: string) => revokeKey(context, key));
  keys
    .command('list')
    .description('list keys, without their secrets')
    .option('--account <account>', 'only of this account, name or id')
    .action((options: { account?: string }) => listKeys(context, options));
}

async function createKey(
  context: CliContext,
  options: KeyOptions & { account: string; name?: string },
) {
  const made = await context.withStores(async stores => {
    const account = await requireAccount(stores, options.account);
    const { expiresIn } = options;
    const asked = {
      name: options.name ?? account.name,
      policy: policyWith({}, options),
      ...(typeof expiresIn === 'object' ? { expiresInMs: expiresIn.inMs } : {}),
    };
    return new ManageKeys(stores.apiKeys).create(account.id, asked, OPERATOR);
  });
  if (made === 'too-many') {
    throw new CommandError(
      `the account has as many keys as it may: ${KEYS_ALIVE_MAX} that are not revoked, ` +
        `${KEYS_EVER_MAX} in all`,
    );
  }
  const { key, token } = made;
  context.report({ api_key: token, ...keyJson(key) }, () => [token, KEEP_IT]);
}

async function setKey(context: CliContext, typed: string, options: KeyOptions & { name?: string }) {
  const { name, expiresIn } = options;
  const changed = await withKey(context, typed, (keys, key) =>
    keys.change(
      key.accountId,
      key.id,
      {
        ...(name === undefined ? {} : { name }),
        ...(expiresIn === undefined ? {} : { expires: expiresIn }),
        policy: policyWith(key.policy, options),
      },
      OPERATOR,
    ),
  );
  context.report(keyJson(changed), () => describe(changed));
}

async function rotateKey(
  context: CliContext,
  typed: string,
  options: { overlap: RotationOverlap },
) {
  const { key, token } = await withKey(context, typed, (keys, { accountId, id }) =>
    keys.rotate(accountId, id, options.overlap, OPERATOR),
  );
  const endsAtMs = key.previousSecret?.endsAtMs ?? null;
  context.report({ api_key: token, ...keyJson(key) }, () => [
    token,
    KEEP_IT,
    endsAtMs === null
      ? 'The old secret has ended.'
      : `The old secret goes on until ${isoTime(endsAtMs)}.`,
  ]);
}

async function revokeKey(context: CliContext, typed: string) {
  const key = await withKey(context, typed, (keys, { accountId, id }) =>
    keys.revoke(accountId, id, OPERATOR),
  );
  context.report(keyJson(key), () => [
    `key ${key.prefix} is revoked since ${isoTime(key.revokedAtMs)}`,
    `it was last used ${key.lastUsedAtMs === null ? 'never' : isoTime(key.lastUsedAtMs)}`,
  ]);
}

/** @throws CommandError where there is no such key; it does not repeat what may be a whole key */
async function withKey<T>(
  context: CliContext,
  typed: string,
  work: (keys: ManageKeys, key: ApiKey) => Promise<T | undefined>,
): Promise<T> {
  return context.withStores(async stores => {
    const key = await stores.apiKeys.find(apiKeyIdOf(typed));
    if (key === undefined) throw new CommandError('there is no such key');
    const done = await work(new ManageKeys(stores.apiKeys), key);
    if (done === undefined) throw new CommandError(`key ${key.prefix} is revoked`);
    return done;
  });
}

async function listKeys(context: CliContext, options: { account?: string }) {
  const { accounts, keys } = await context.withStores(async stores => {
    const only = options.account && (await requireAccount(stores, options.account));
    return {
      accounts: new Map((await stores.accounts.list()).map(({ id, name }) => [id, name])),
      keys: await stores.apiKeys.list(only ? only.id : undefined),
    };
  });
  context.report(keys.map(keyJson), () =>
    table(
      ['KEY', 'ACCOUNT', 'NAME', 'CREATED', 'LAST USED', 'EXPIRES', 'REVOKED', 'MAY'],
      keys.map(key => [
        key.prefix,
        accounts.get(key.accountId) ?? key.accountId,
        key.name,
        isoTime(key.createdAtMs),
        isoTime(key.lastUsedAtMs) ?? '-',
        isoTime(key.expiresAtMs) ?? '-',
        isoTime(key.revokedAtMs) ?? '-',
        mayOf(key) || '-',
      ]),
    ),
  );
}

function describe(key: ApiKey): string[] {
  return [
    `key ${key.prefix} (${key.name})`,
    `expires: ${isoTime(key.expiresAtMs) ?? 'never'}`,
    `may: ${mayOf(key) || 'whatever its account may'}`,
  ];
}

/** What is taken away from the key, in one line. */
function mayOf({ policy, capUse }: ApiKey): string {
  const { cap, submissionsPerMinute, scopes, networks } = policy;
  const of = cap?.period === 'total' ? '' : `/${cap?.period}`;
  return [
    ...(cap === undefined ? [] : [`cap ${capUse?.used ?? 0} of ${cap.credits}${of}`]),
    ...(submissionsPerMinute === undefined ? [] : [`${submissionsPerMinute}/min`]),
    ...(scopes === undefined ? [] : [scopes.join('+')]),
    ...(networks === undefined ? [] : [`from ${networks.join(',')}`]),
  ].join('; ');
}

function keyJson(key: ApiKey) {
  return { key_id: key.id, account_id: key.accountId, ...keyView(key) };
}
