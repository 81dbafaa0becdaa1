/** Only `create` and `rotate` print a key, and only once. The service stores its hash. */

import { apiKeyIdOf } from '@matting/accounts/keys/api-key-token.ts';
import {
  CAP_PERIODS,
  isCapPeriod,
  KEY_EXPIRY_DAYS_MAX,
  KEY_MODELS_MAX,
  KEY_NETWORKS_MAX,
  KEY_RATE_MAX,
  KEY_SCOPES,
  KEYS_ALIVE_MAX,
  KEYS_EVER_MAX,
  type KeyCap,
  type KeyPolicy,
  type KeyScope,
  parseCapCredits,
  parseExpiryDays,
  parseKeyModels,
  parseKeyNetworks,
  parseKeyRate,
  parseKeyScopes,
  ROTATION_OVERLAPS,
  type RotationOverlap,
} from '@matting/accounts/keys/key-policy.ts';
import { keyView, ManageKeys } from '@matting/accounts/keys/manage-keys.ts';
import type { ApiKey } from '@matting/accounts/keys/read-api-keys.ts';
import { CREDITS_AMOUNT_MAX } from '@matting/accounts/ledger/ledger.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { isoTime } from '@matting/program/iso-time.ts';
import { type Command, InvalidArgumentError } from 'commander';
import { requireAccount } from '../operator/operate-accounts.ts';
import { parseName, typed } from './arguments.ts';
import { type CliContext, CommandError, table } from './context.ts';

const OPERATOR = { kind: 'operator' } as const;
const KEEP_IT = 'Save this key now. The service stores only its hash and cannot show it again.';

export function addKeyCommands(program: Command, context: CliContext): void {
  const keys = program
    .command('keys')
    .description('create, change, rotate, revoke and list API keys');
  const create = keys
    .command('create')
    .description('create a key and print it, only this once')
    .requiredOption('--account <account>', 'account, by name or id');
  addKeyOptions(create).action((options: KeyOptions & { account: string }) =>
    createKey(context, options),
  );
  const ofKey = (name: string, description: string) =>
    keys.command(name).description(description).argument('<key>', 'id or prefix, from "keys list"');
  const set = ofKey('set', 'change a key; takes effect within a second');
  addKeyOptions(set).action((key: string, options: KeyOptions) => setKey(context, key, options));
  ofKey('rotate', 'give a key a new secret and print it, only this once')
    .option('--overlap <time>', 'how long the old secret still works', parseOverlap, '24h')
    .action((key: string, { overlap }: { overlap: RotationOverlap }) =>
      rotateKey(context, key, overlap),
    );
  ofKey(
    'revoke',
    'revoke a key within a second and cancel its batches; its other jobs still finish',
  ).action((key: string) => revokeKey(context, key));
  keys
    .command('list')
    .description('list keys, without their secrets')
    .option('--account <account>', 'only this account, by name or id')
    .action((options: { account?: string }) => listKeys(context, options));
}

async function createKey(context: CliContext, options: KeyOptions & { account: string }) {
  const made = await context.withStores(async stores => {
    const account = await requireAccount(stores, options.account);
    const { expiresIn } = options;
    const newKey = {
      name: options.name ?? account.name,
      policy: policyWith({}, options),
      ...(typeof expiresIn === 'object' ? { expiresInMs: expiresIn.inMs } : {}),
    };
    return new ManageKeys(stores.apiKeys).create(account.id, newKey, OPERATOR);
  });
  if (made === 'too-many') {
    throw new CommandError(
      `the account has too many keys (at most ${KEYS_ALIVE_MAX} not revoked, ${KEYS_EVER_MAX} in ` +
        'all); revoke one first',
    );
  }
  const { key, token } = made;
  context.report({ api_key: token, ...keyJson(key) }, () => [token, KEEP_IT, endOf(key)]);
}

async function setKey(context: CliContext, typed: string, options: KeyOptions) {
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

async function rotateKey(context: CliContext, typed: string, overlap: RotationOverlap) {
  const { key, token } = await withKey(context, typed, (keys, { accountId, id }) =>
    keys.rotate(accountId, id, overlap, OPERATOR),
  );
  const endsAtMs = key.previousSecret?.endsAtMs ?? null;
  context.report({ api_key: token, ...keyJson(key) }, () => [
    token,
    KEEP_IT,
    endsAtMs === null
      ? 'The old secret no longer works.'
      : `The old secret works until ${isoTime(endsAtMs)}.`,
    endOf(key),
  ]);
}

function endOf({ expiresAtMs }: ApiKey): string {
  return expiresAtMs === null
    ? 'The key does not expire.'
    : `The key expires at ${isoTime(expiresAtMs)}.`;
}

async function revokeKey(context: CliContext, typed: string) {
  const key = await withKey(context, typed, (keys, { accountId, id }) =>
    keys.revoke(accountId, id, OPERATOR),
  );
  context.report(keyJson(key), () => [
    `key ${key.prefix} was revoked at ${isoTime(key.revokedAtMs)}`,
    key.lastUsedAtMs === null ? 'never used' : `last used at ${isoTime(key.lastUsedAtMs)}`,
  ]);
}

/** The error does not repeat `typed`, which may be a whole key. @throws CommandError */
async function withKey<T>(
  context: CliContext,
  typed: string,
  work: (keys: ManageKeys, key: ApiKey) => Promise<T | undefined>,
): Promise<T> {
  return context.withStores(async stores => {
    const key = await stores.apiKeys.find(apiKeyIdOf(typed));
    if (key === undefined) throw new CommandError('no such key; see "keys list"');
    const done = await work(new ManageKeys(stores.apiKeys), key);
    if (done === undefined)
      throw new CommandError(`key ${key.prefix} is revoked; create a new one`);
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
      ['KEY', 'ACCOUNT', 'NAME', 'CREATED', 'LAST USED', 'EXPIRES', 'REVOKED', 'LIMITS'],
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
    `limits: ${mayOf(key) || 'none of its own'}`,
  ];
}

function mayOf({ policy, capUse }: ApiKey): string {
  const { cap, submissionsPerMinute, scopes, networks, models } = policy;
  const of = cap?.period === 'total' ? '' : `/${cap?.period}`;
  return [
    ...(cap === undefined ? [] : [`cap ${capUse?.used ?? 0} of ${cap.credits}${of}`]),
    ...(submissionsPerMinute === undefined ? [] : [`${submissionsPerMinute}/min`]),
    ...(scopes === undefined ? [] : [scopes.join('+')]),
    ...(networks === undefined ? [] : [`from ${networks.join(',')}`]),
    ...(models === undefined ? [] : [`models ${models.join(',')}`]),
  ].join('; ');
}

function keyJson(key: ApiKey) {
  return { key_id: key.id, account_id: key.accountId, ...keyView(key) };
}

/** A missing option leaves a new key without it, and an existing key unchanged. */
interface KeyOptions {
  readonly name?: string;
  readonly expiresIn?: 'never' | { readonly inMs: number };
  readonly cap?: KeyCap | 'none';
  readonly rate?: number | 'none';
  readonly scopes?: readonly KeyScope[] | 'all';
  readonly networks?: readonly string[] | 'any';
  readonly models?: readonly string[] | 'all';
}

function addKeyOptions(command: Command): Command {
  return command
    .option('--name <name>', 'name of the key', parseName)
    .option('--expires-in <days>', 'days until the key expires, or never', parseExpiry)
    .option('--cap <credits>', 'credit limit: 500, 500/day, 500/month or none', parseCap)
    .option('--rate <n>', 'submissions per minute, besides the account’s limit, or none', parseRate)
    .option('--scopes <list>', 'any of submit, read and account, or all', parseScopes)
    .option('--networks <list>', 'networks (CIDR) that may use the key, or any', parseNetworks)
    .option('--models <list>', 'models that its requests may name, or all', parseModels);
}

function policyWith(before: KeyPolicy, options: KeyOptions): KeyPolicy {
  const { cap = before.cap, rate = before.submissionsPerMinute } = options;
  const { scopes = before.scopes, networks = before.networks } = options;
  const { models = before.models } = options;
  return {
    ...(cap === undefined || cap === 'none' ? {} : { cap }),
    ...(rate === undefined || rate === 'none' ? {} : { submissionsPerMinute: rate }),
    ...(scopes === undefined || scopes === 'all' ? {} : { scopes }),
    ...(networks === undefined || networks === 'any' ? {} : { networks }),
    ...(models === undefined || models === 'all' ? {} : { models }),
  };
}

const parseOverlap = typed(
  text => (Object.hasOwn(ROTATION_OVERLAPS, text) ? (text as RotationOverlap) : undefined),
  `Use one of ${Object.keys(ROTATION_OVERLAPS).join(', ')}.`,
);

const parseExpiry = typed(text => {
  if (text === 'never') return text;
  const days = parseExpiryDays(text);
  return days && { inMs: days * DAY_MS };
}, `Use a number of days from 1 to ${KEY_EXPIRY_DAYS_MAX}, or never.`);

const parseCap = typed(
  (text): KeyCap | 'none' | undefined => {
    if (text === 'none') return text;
    const [digits = '', period = 'total', ...more] = text.split('/');
    const credits = parseCapCredits(digits);
    return credits !== undefined && isCapPeriod(period) && more.length === 0
      ? { credits, period }
      : undefined;
  },
  `Use 1 to ${CREDITS_AMOUNT_MAX} credits, optionally followed by / and one of ` +
    `${CAP_PERIODS.join(', ')}, or none.`,
);

const parseRate = typed(
  text => (text === 'none' ? text : parseKeyRate(text)),
  `Use 1 to ${KEY_RATE_MAX}, or none.`,
);

const parseScopes = typed(
  text => (text === 'all' ? text : parseKeyScopes(text.split(','))),
  `Use any of ${KEY_SCOPES.join(', ')}, separated by commas, or all.`,
);

const parseModels = typed(
  text => (text === 'all' ? text : parseKeyModels(text.split(','))),
  `Use at most ${KEY_MODELS_MAX} names of plans and models, separated by commas, or all.`,
);

function parseNetworks(text: string): readonly string[] | 'any' {
  const parsed = text === 'any' ? { networks: text } : parseKeyNetworks(text);
  if ('networks' in parsed) return parsed.networks as readonly string[] | 'any';
  throw new InvalidArgumentError(
    `"${parsed.wrong}" is not a network, or is one too many. Use at most ${KEY_NETWORKS_MAX} ` +
      'such as 192.0.2.0/24, without bits after the prefix, separated by commas, or any.',
  );
}
