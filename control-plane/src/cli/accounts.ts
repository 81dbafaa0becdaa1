/** `accounts create|list` and `bootstrap`. */
import type { Command } from 'commander';
import { OperateAccounts } from '../services/operator/operate-accounts.ts';
import { parseCredits, parseName } from './arguments.ts';
import { type CliContext, CommandError, table } from './context.ts';

interface JsonOption {
  readonly json?: boolean;
}

export function addAccountCommands(program: Command, context: CliContext): void {
  const accounts = program.command('accounts').description('create and list accounts');
  accounts
    .command('create')
    .description('create an account, without credits')
    .argument('<name>', 'unique; what other commands call it', parseName)
    .option('--json', 'print JSON')
    .action((name: string, options: JsonOption) => createAccount(context, name, options));
  accounts
    .command('list')
    .description('list accounts with their credits')
    .option('--json', 'print JSON')
    .action((options: JsonOption) => listAccounts(context, options));
}

export function addBootstrapCommand(program: Command, context: CliContext): void {
  program
    .command('bootstrap')
    .description('on a database without accounts: migrate it, create one with credits and a key')
    .requiredOption('--account <name>', 'its name', parseName)
    .requiredOption('--credits <n>', 'its credits', parseCredits)
    .option('--json', 'print JSON')
    .action(async (options: JsonOption & { account: string; credits: number }) => {
      const made = await context.withStores(
        stores => stores.bootstrap(options.account, options.credits),
        { migrations: 'run' },
      );
      const value = made.created
        ? { created: true, account_id: made.accountId, api_key: made.token }
        : { created: false };
      context.report(options.json, value, () =>
        made.created
          ? [`account ${options.account}: ${options.credits} credits, API key ${made.token}`]
          : ['there is an account already: nothing was created'],
      );
    });
}

async function createAccount(context: CliContext, name: string, options: JsonOption) {
  const account = await context.withStores(stores => new OperateAccounts(stores).create(name));
  if (account === undefined) throw new CommandError(`there is an account "${name}" already`);
  context.report(options.json, account, () => [
    `account ${account.name} (${account.account_id}) created`,
  ]);
}

async function listAccounts(context: CliContext, options: JsonOption) {
  const accounts = await context.withStores(stores => new OperateAccounts(stores).list());
  context.report(options.json, accounts, () =>
    table(
      ['NAME', 'AVAILABLE', 'RESERVED', 'ID'],
      accounts.map(({ name, credits, account_id }) => [
        name,
        String(credits.available),
        String(credits.reserved),
        account_id,
      ]),
    ),
  );
}
