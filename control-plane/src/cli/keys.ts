/**
 * `keys create|revoke|list`. The key itself is printed once, by create, and is stored nowhere.
 */
import type { Command } from 'commander';
import type { ApiKey } from '../store/accounts/api-key-store.ts';
import { apiKeyIdOf } from '../store/accounts/api-key-token.ts';
import { parseName } from './arguments.ts';
import { type CliContext, CommandError, instant, requireAccount, table } from './context.ts';

interface JsonOption {
  readonly json?: boolean;
}

export function addKeyCommands(program: Command, context: CliContext): void {
  const keys = program.command('keys').description('create, revoke and list API keys');
  keys
    .command('create')
    .description('create a key of an account and print it, this once')
    .requiredOption('--account <account>', 'name or id')
    .option('--name <name>', 'what the key is for', parseName)
    .option('--json', 'print JSON')
    .action((options: JsonOption & { account: string; name?: string }) =>
      createKey(context, options),
    );
  keys
    .command('revoke')
    .description('end a key everywhere within a second; its open jobs are finished')
    .argument('<key>', 'id or prefix, as list shows it')
    .option('--json', 'print JSON')
    .action((key: string, options: JsonOption) => revokeKey(context, key, options));
  keys
    .command('list')
    .description('list keys, without their secrets')
    .option('--account <account>', 'only of this account, name or id')
    .option('--json', 'print JSON')
    .action((options: JsonOption & { account?: string }) => listKeys(context, options));
}

async function createKey(
  context: CliContext,
  options: JsonOption & { account: string; name?: string },
) {
  const { key, token } = await context.withStores(async stores => {
    const account = await requireAccount(stores, options.account);
    return stores.apiKeys.create(account.id, options.name ?? account.name);
  });
  context.report(options.json, { api_key: token, ...keyJson(key) }, () => [
    token,
    'Keep it: it is stored as a hash and cannot be shown again.',
  ]);
}

async function revokeKey(context: CliContext, typed: string, options: JsonOption) {
  const id = apiKeyIdOf(typed);
  const key = await context.withStores(stores => stores.apiKeys.revoke(id));
  // Does not repeat the argument: it may be a whole key.
  if (key === undefined) throw new CommandError('there is no such key');
  context.report(options.json, keyJson(key), () => [
    `key ${key.prefix} is revoked since ${instant(key.revokedAtMs)}`,
  ]);
}

async function listKeys(context: CliContext, options: JsonOption & { account?: string }) {
  const { accounts, keys } = await context.withStores(async stores => {
    const only = options.account && (await requireAccount(stores, options.account));
    return {
      accounts: new Map((await stores.accounts.list()).map(({ id, name }) => [id, name])),
      keys: await stores.apiKeys.list(only ? only.id : undefined),
    };
  });
  context.report(options.json, keys.map(keyJson), () =>
    table(
      ['KEY', 'ACCOUNT', 'NAME', 'CREATED', 'REVOKED'],
      keys.map(key => [
        key.prefix,
        accounts.get(key.accountId) ?? key.accountId,
        key.name,
        instant(key.createdAtMs),
        instant(key.revokedAtMs) ?? '-',
      ]),
    ),
  );
}

function keyJson(key: ApiKey) {
  return {
    key_id: key.id,
    prefix: key.prefix,
    account_id: key.accountId,
    name: key.name,
    created_at: instant(key.createdAtMs),
    revoked_at: instant(key.revokedAtMs),
  };
}
