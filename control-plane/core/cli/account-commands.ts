import type { Database } from '@matting/database/database.ts';
import type { Command } from 'commander';
import { OperateAccounts } from '../operator/operate-accounts.ts';
import type { StoresWithoutEnds } from '../stores.ts';
import { parseCredits, parseName } from './arguments.ts';
import { type CliContext, CommandError, table } from './context.ts';

export function addAccountCommands(program: Command, context: CliContext): void {
  const accounts = program.command('accounts').description('create and list accounts');
  accounts
    .command('create')
    .description('create an account, without credits')
    .argument('<name>', 'unique name for other commands', parseName)
    .action(async (name: string) => {
      const account = await context.withStores(stores => new OperateAccounts(stores).create(name));
      if (account === undefined)
        throw new CommandError(`the account "${name}" exists; choose another name`);
      context.report(account, () => [`account ${account.name} (${account.account_id}) created`]);
    });
  accounts
    .command('list')
    .description('list accounts with their credits')
    .action(async () => {
      const all = await context.withStores(stores => new OperateAccounts(stores).list());
      context.report(all, () =>
        table(
          ['NAME', 'AVAILABLE', 'RESERVED', 'ID'],
          all.map(({ name, credits, account_id }) => [
            name,
            String(credits.available),
            String(credits.reserved),
            account_id,
          ]),
        ),
      );
    });
}

export function addBootstrapCommand(program: Command, context: CliContext): void {
  program
    .command('bootstrap')
    .description('migrate the database; if it has no account, create one with credits and a key')
    .requiredOption('--account <name>', 'name of the account', parseName)
    .requiredOption('--credits <n>', 'credits of the account', parseCredits)
    .action((options: BootstrapOptions) => bootstrap(context, options));
}

interface BootstrapOptions {
  readonly account: string;
  readonly credits: number;
}

interface AlsoDone {
  readonly value: Readonly<Record<string, unknown>>;
  readonly lines: readonly string[];
}

/** @param also what a package does on the same database, once the account exists */
export async function bootstrap(
  context: CliContext,
  { account, credits }: BootstrapOptions,
  also: (stores: StoresWithoutEnds, database: Database) => Promise<AlsoDone> = async () => ({
    value: {},
    lines: [],
  }),
): Promise<void> {
  const { made, done } = await context.withStores(async (stores, database) => ({
    made: await stores.bootstrap(account, credits),
    done: await also(stores, database),
  }));
  const value = made.created
    ? { created: true, account_id: made.accountId, api_key: made.token }
    : { created: false };
  context.report({ ...value, ...done.value }, () => [
    made.created
      ? `account ${account}: ${credits} credits, API key ${made.token}`
      : 'the database has an account; nothing was created',
    ...done.lines,
  ]);
}
