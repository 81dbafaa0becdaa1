/** `accounts invite`, `accounts sign-in-link` and `bootstrap --owner`: each prints a link. */

import { bootstrap } from '@matting/core/cli/account-commands.ts';
import { type CliContext, CommandError } from '@matting/core/cli/context.ts';
import { requireAccount } from '@matting/core/operator/operate-accounts.ts';
import type { StoresWithoutEnds } from '@matting/core/stores.ts';
import { type Command, InvalidArgumentError } from 'commander';
import { parseMail } from './mails/mail-address.ts';
import { createLink, HOUR_MS, type MadeLink } from './people/invitations.ts';
import type { LinkPurpose } from './people/link-store.ts';
import { createPortalStores, type PortalStores } from './portal-stores.ts';
import { isRole, ROLES, type Role } from './session/roles.ts';
import { loadLinkConfig, warnOfAccountArea } from './settings.ts';

interface LinkOptions {
  readonly role: Role;
}

type OwnerOptions = Parameters<typeof bootstrap>[1] & { readonly owner?: string };

export function addOwnerOption(program: Command, context: CliContext): void {
  commandOf(program, 'bootstrap')
    .option('--owner <mail>', 'owner of the account; prints a new sign-in link', parseMailArgument)
    .action((options: OwnerOptions) => bootstrapWithOwner(context, options));
}

export function addLinkCommands(program: Command, context: CliContext): void {
  const accounts = commandOf(program, 'accounts');
  accounts
    .command('invite')
    .description('print a link that adds a person to the account; it works once')
    .argument('<account>', 'name or id')
    .argument('<mail>', 'mail address of the person', parseMailArgument)
    .option('--role <role>', `role of the person: ${ROLES.join(', ')}`, parseRole, 'member')
    .action((account: string, mail: string, options: LinkOptions) =>
      printLink(context, { account, mail, purpose: 'invitation' }, options),
    );
  accounts
    .command('sign-in-link')
    .description('print a sign-in link, for a forgotten password; it works once')
    .argument('<account>', 'name or id')
    .argument('<mail>', 'mail address of the person', parseMailArgument)
    .option('--role <role>', 'role of a new person', parseRole, 'member')
    .action((account: string, mail: string, options: LinkOptions) =>
      printLink(context, { account, mail, purpose: 'sign-in' }, options),
    );
}

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
    for (const warning of warnOfAccountArea({ accountArea })) context.warn(warning);
    const letterOf =
      server === undefined
        ? undefined
        : { accountName: name, seal: await context.mailSealer(stores) };
    const link = { accountId, mail, role, purpose, letterOf };
    const { links } = createPortalStores(database);
    const created = await createLink(links, baseUrl, link, { kind: 'operator' });
    if (created === 'too-many' || 'reason' in created) {
      throw new CommandError('the account has too many open invitations; withdraw one first');
    }
    return created;
  });
  const hours = made.lifeMs / HOUR_MS;
  context.report({ mail, role, url: made.url, hours }, () => [
    `link for ${mail} (${role}), works once within ${hours} hours:  ${made.url}`,
  ]);
}

function parseMailArgument(text: string): string {
  const mail = parseMail(text);
  if (mail === undefined)
    throw new InvalidArgumentError('Use a mail address such as ann@shop.example.');
  return mail;
}

function parseRole(text: string): Role {
  if (!isRole(text)) throw new InvalidArgumentError(`Use one of ${ROLES.join(', ')}.`);
  return text;
}
