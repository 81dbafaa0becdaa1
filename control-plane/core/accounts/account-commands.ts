/** `accounts create|list|invite|sign-in-link` and `bootstrap`. */
import type { Command } from 'commander';
import { loadLinkConfig } from '../../config.ts';
import { createLink } from '../../portal/people/links.ts';
import { addPeopleCommands, parseMailArgument } from '../../portal/people/people-commands.ts';
import { parseCredits, parseName } from '../cli/arguments.ts';
import { type CliContext, CommandError, table } from '../cli/context.ts';
import type { StoresWithoutEnds } from '../stores.ts';
import { OperateAccounts } from './operate-accounts.ts';

export function addAccountCommands(program: Command, context: CliContext): void {
  const accounts = program.command('accounts').description('create and list accounts');
  accounts
    .command('create')
    .description('create an account, without credits')
    .argument('<name>', 'unique; what other commands call it', parseName)
    .action(async (name: string) => {
      const account = await context.withStores(stores => new OperateAccounts(stores).create(name));
      if (account === undefined) throw new CommandError(`there is an account "${name}" already`);
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
  addPeopleCommands(accounts, context);
}

export function addBootstrapCommand(program: Command, context: CliContext): void {
  program
    .command('bootstrap')
    .description('on a database without accounts: migrate it, create one with credits and a key')
    .requiredOption('--account <name>', 'its name', parseName)
    .requiredOption('--credits <n>', 'its credits', parseCredits)
    .option('--owner <mail>', 'print a link that signs its owner in, every time', parseMailArgument)
    .action((options: BootstrapOptions) => bootstrap(context, options));
}

interface BootstrapOptions {
  readonly account: string;
  readonly credits: number;
  readonly owner?: string;
}

async function bootstrap(context: CliContext, options: BootstrapOptions): Promise<void> {
  const { account, credits, owner } = options;
  const { made, url } = await context.withStores(
    async stores => ({
      made: await stores.bootstrap(account, credits),
      url: owner === undefined ? undefined : await ownersLink(context, stores, account, owner),
    }),
    { migrations: 'run' },
  );
  const value = made.created
    ? { created: true, account_id: made.accountId, api_key: made.token }
    : { created: false };
  const link = url === undefined ? {} : { sign_in_link: url };
  context.report({ ...value, ...link }, () => [
    made.created
      ? `account ${account}: ${credits} credits, API key ${made.token}`
      : 'there is an account already: nothing was created',
    ...(url === undefined ? [] : [`sign-in link of ${owner}: ${url}`]),
  ]);
}

/** Undefined: there is no such account, or nobody can sign in at its address. */
async function ownersLink(
  context: CliContext,
  stores: StoresWithoutEnds,
  name: string,
  mail: string,
): Promise<string | undefined> {
  const { baseUrl, accountArea } = loadLinkConfig(context.environment);
  const account = await stores.accounts.findByNameOrId(name);
  if (account === undefined || accountArea?.canSignIn !== true) return undefined;
  const link = { accountId: account.id, mail, role: 'owner', purpose: 'sign-in' } as const;
  const made = await createLink(stores.links, baseUrl, link, { kind: 'operator' });
  return typeof made === 'object' && 'url' in made ? made.url : undefined;
}
