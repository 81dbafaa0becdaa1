/**
 * `accounts invite`, `accounts sign-in-link` and `bootstrap --owner`: the links by which people come
 * into an account.
 */
import { type Command, InvalidArgumentError } from 'commander';
import { type BootstrapOptions, bootstrap } from '../../core/accounts/account-commands.ts';
import { requireAccount } from '../../core/accounts/operate-accounts.ts';
import { type CliContext, CommandError } from '../../core/cli/context.ts';
import type { StoresWithoutEnds } from '../../core/stores.ts';
import { createPortalStores, type PortalStores } from '../portal-stores.ts';
import { loadLinkConfig, warnOfAccountArea } from '../settings.ts';
import type { LinkPurpose } from '../tables.ts';
import { createLink, type MadeLink } from './links.ts';
import { parseMail } from './mail-address.ts';
import { isRole, ROLES, type Role } from './roles.ts';

interface LinkOptions {
  readonly role: Role;
}

interface OwnerOptions extends BootstrapOptions {
  readonly owner?: string;
}

export function addOwnerOption(program: Command, context: CliContext): void {
  commandOf(program, 'bootstrap')
    .option('--owner <mail>', 'print a link that signs its owner in, every time', parseMailArgument)
    .action((options: OwnerOptions) => bootstrapWithOwner(context, options));
}

export function addPeopleCommands(program: Command, context: CliContext): void {
  const accounts = commandOf(program, 'accounts');
  accounts
    .command('invite')
    .description('print a link that makes somebody a person of the account; it works once')
    .argument('<account>', 'name or id')
    .argument('<mail>', 'whom to give it to', parseMailArgument)
    .option('--role <role>', ROLES.join(', '), parseRole, 'member')
    .action((account: string, mail: string, options: LinkOptions) =>
      printLink(context, { account, mail, purpose: 'invitation' }, options),
    );
  accounts
    .command('sign-in-link')
    .description('print a link that signs a person in, for a forgotten password; it works once')
    .argument('<account>', 'name or id')
    .argument('<mail>', 'whose it is', parseMailArgument)
    .option('--role <role>', 'of somebody who is new', parseRole, 'member')
    .action((account: string, mail: string, options: LinkOptions) =>
      printLink(context, { account, mail, purpose: 'sign-in' }, options),
    );
}

/** One that the core has made. */
function commandOf(program: Command, name: string): Command {
  const command = program.commands.find(one => one.name() === name);
  if (command === undefined) throw new Error(`there is no command ${name}`);
  return command;
}

async function bootstrapWithOwner(context: CliContext, options: OwnerOptions): Promise<void> {
  const { account, owner } = options;
  if (owner === undefined) return await bootstrap(context, options);
  await bootstrap(context, options, async (stores, database) => {
    const all = { ...stores, ...createPortalStores(database) };
    const url = await ownersLink(context, all, account, owner);
    if (url === undefined) return { value: {}, lines: [] };
    return { value: { sign_in_link: url }, lines: [`sign-in link of ${owner}: ${url}`] };
  });
}

/** Undefined: there is no such account, or nobody can sign in at its address. */
async function ownersLink(
  context: CliContext,
  stores: Pick<StoresWithoutEnds & PortalStores, 'accounts' | 'links'>,
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

async function printLink(
  context: CliContext,
  of: { readonly account: string; readonly mail: string; readonly purpose: LinkPurpose },
  { role }: LinkOptions,
): Promise<void> {
  const { mail, purpose } = of;
  const made = await context.withStores(async (stores, database): Promise<MadeLink> => {
    const { id: accountId, name } = await requireAccount(stores, of.account);
    const { baseUrl, accountArea, mail: server } = loadLinkConfig(context.environment);
    const warning = warnOfAccountArea({ accountArea });
    if (warning !== undefined) context.warn(warning);
    const isMailed = server !== undefined && purpose === 'invitation';
    const letterOf = isMailed
      ? { accountName: name, seal: await context.mailSealer(stores) }
      : undefined;
    const link = { accountId, mail, role, purpose, letterOf };
    const { links } = createPortalStores(database);
    const created = await createLink(links, baseUrl, link, { kind: 'operator' });
    if (created === 'too-many' || 'reason' in created) {
      throw new CommandError('too many invitations of the account wait to be accepted');
    }
    return created;
  });
  const hours = made.lifeMs / 3_600_000;
  context.report({ mail, role, url: made.url, hours }, () => [
    `for ${mail} (${role}), once, within ${hours} hours:  ${made.url}`,
  ]);
}

function parseMailArgument(text: string): string {
  const mail = parseMail(text);
  if (mail === undefined)
    throw new InvalidArgumentError('a mail address, such as ann@shop.example');
  return mail;
}

function parseRole(text: string): Role {
  if (!isRole(text)) throw new InvalidArgumentError(`one of ${ROLES.join(', ')}`);
  return text;
}
