/**
 * Invitations and sign-in links: who has the link can use it, once. `accounts invite`, `accounts
 * sign-in-link` and `bootstrap --owner` print them.
 */

import { randomBytes, randomUUID } from 'node:crypto';
import { type BootstrapOptions, bootstrap } from '@matting/core/accounts/account-commands.ts';
import type { Actor } from '@matting/core/accounts/audit.ts';
import { requireAccount } from '@matting/core/accounts/operate-accounts.ts';
import { type CliContext, CommandError } from '@matting/core/cli/context.ts';
import type { StoresWithoutEnds } from '@matting/core/stores.ts';
import type { NewMail } from '@matting/core/webhooks/outbox-store.ts';
import { noteRequestSecret } from '@matting/program/request-owner.ts';
import { type Command, InvalidArgumentError } from 'commander';
import type { Withheld } from '../alerts/messages.ts';
import type { OnWithheld } from '../alerts/owners-mails.ts';
import { createPortalStores, type PortalStores } from '../portal-stores.ts';
import { loadLinkConfig, warnOfAccountArea } from '../settings.ts';
import { type PasswordFault, type Passwords, passwordFaultOf } from '../sign-in/passwords.ts';
import { type Browser, endedHashOf, hashOfSecret, newSession } from '../sign-in/session-store.ts';
import type { Entered, KnownBrowsers, SignInThrottle } from '../sign-in/sign-in.ts';
import type { LinkPurpose } from '../tables.ts';
import type { FoundLink, LinkStore, LinkUse, LinkUseOutcome } from './link-store.ts';
import { parseMail } from './mail-address.ts';
import type { PeopleStore } from './people-store.ts';
import { isRole, ROLES, type Role } from './roles.ts';

export type { FoundLink };

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Long enough for somebody who is away for a few days. */
const INVITATION_MS = 7 * DAY_MS;
/** Printed in a terminal, and used from it. */
const SIGN_IN_LINK_MS = 12 * HOUR_MS;

const TOKEN_BYTES = 32;

interface MadeLink {
  readonly url: string;
  readonly lifeMs: number;
}

type LinkRefusal = 'too-many' | Withheld;

/**
 * Makes a link; its token is in the URL this once and nowhere else. The account must exist.
 * @param mail of parseMail
 * @returns too-many: the account has as many open invitations as it may
 */
export async function createLink(
  links: Pick<LinkStore, 'create'>,
  baseUrl: string,
  of: {
    readonly accountId: string;
    readonly mail: string;
    readonly role: Role;
    readonly purpose: LinkPurpose;
    readonly letterOf?: LetterOf | undefined;
  },
  actor: Actor,
): Promise<MadeLink | LinkRefusal> {
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  const isInvitation = of.purpose === 'invitation';
  const lifeMs = isInvitation ? INVITATION_MS : SIGN_IN_LINK_MS;
  const tokenHash = hashOfSecret(token);
  const { letterOf, ...named } = of;
  const id = randomUUID();
  const url = `${baseUrl}/account/${isInvitation ? 'invitations' : 'links'}/${token}`;
  const letter = letterOf && linkLetter({ ...of, id, letterOf, url, lifeMs });
  // What the operator makes goes from hand to hand; an owner's is seen by its reader alone, or by both.
  const provesMail = letter !== undefined || actor.kind === 'operator';
  const made = { id, entryId: randomUUID(), tokenHash, lifeMs };
  const messagesMax = letterOf?.messagesMax;
  const link = { ...made, provesMail, letter, messagesMax, ...named };
  const outcome = await links.create(link, actor);
  return outcome === 'created' ? { url, lifeMs } : outcome;
}

export type AcceptOutcome =
  | Entered
  | { readonly kind: 'bad-password'; readonly fault: PasswordFault }
  | { readonly kind: 'throttled'; readonly waitMs: number }
  /** Who is signed in is another than the one invited. */
  | { readonly kind: 'another-person' }
  | Exclude<LinkUseOutcome, { readonly kind: 'signed-in' }>;

interface LinksParts {
  readonly links: LinkStore;
  readonly people: Pick<PeopleStore, 'findByMail'>;
  readonly passwords: Pick<Passwords, 'hash' | 'verify'>;
  readonly throttle: Pick<SignInThrottle, 'take' | 'giveBack' | 'knownId'>;
  readonly browsers: KnownBrowsers;
  readonly baseUrl: string;
  readonly mails: boolean;
  readonly sealMail: LetterOf['seal'];
  /** Of an account a day. */
  readonly messagesMax: number;
  readonly onWithheld: OnWithheld;
}

interface LinkUser extends Browser {
  readonly userId: string | undefined;
}

export class Links {
  readonly #parts: LinksParts;

  constructor(parts: LinksParts) {
    this.#parts = parts;
  }

  /** Whether invitations go by mail, and are seen by nobody else. */
  get byMail(): boolean {
    return this.#parts.mails;
  }

  find(token: string, purpose: LinkPurpose): Promise<FoundLink | undefined> {
    const hash = hashOfSecret(token);
    noteRequestSecret(hash);
    return this.#parts.links.find(hash, purpose);
  }

  /**
   * By the password of the person whom the mail is of, or else by one that they choose now. Nobody
   * learns whether there is one, but by the password, or by being let in.
   * @throws ContractError SERVICE_UNAVAILABLE
   */
  async acceptInvitation(token: string, password: string, by: LinkUser): Promise<AcceptOutcome> {
    const link = await this.find(token, 'invitation');
    if (link === undefined) return { kind: 'unknown' };
    const { people, passwords, throttle } = this.#parts;
    const { mail } = link;
    const { address } = by;
    const person = await people.findByMail(mail);
    if (by.userId !== undefined && by.userId !== person?.userId) return { kind: 'another-person' };
    const attempt = { mail, address, browser: by.known, person };
    const waitMs = await throttle.take(attempt);
    if (waitMs > 0) return { kind: 'throttled', waitMs };
    // Who proves a mail that nobody has proven needs no password of before, unless they have just
    // shown that it is theirs by being signed in: a slip of the hand would set another.
    const isSignedIn = by.userId !== undefined;
    const isNew = person === undefined || (link.provesMail && !person.isProven && !isSignedIn);
    const stored = isNew ? null : person.passwordHash;
    const knownId = by.userId ?? throttle.knownId(attempt);
    const isTheirs = await passwords.verify(password, stored, address, knownId);
    const fault = isTheirs ? undefined : await passwordFaultOf(password, mail);
    if (fault !== undefined) return { kind: 'bad-password', fault };
    if (!isNew && !isTheirs) return { kind: 'refused' };
    const passwordHash = isNew ? await passwords.hash(password, address) : stored;
    const hashes = { passwordHash, verifiedHash: stored };
    const outcome = await this.#use(token, 'invitation', hashes, by);
    if (outcome.kind === 'signed-in') await throttle.giveBack(attempt);
    return outcome;
  }

  async signIn(token: string, by: Browser): Promise<AcceptOutcome> {
    return this.#use(token, 'sign-in', { passwordHash: null, verifiedHash: null }, by);
  }

  /**
   * too-many: the account has as many open ones as it may; a reason: mails of today are used up.
   * Nothing was made then. @param mail of parseMail @returns url undefined: it goes by mail, and
   * nobody else sees it
   */
  async invite(
    accountId: string,
    of: { readonly mail: string; readonly role: Role; readonly accountName: string },
    actor: Actor,
  ) {
    const { links, baseUrl, mails, sealMail: seal, messagesMax } = this.#parts;
    const { accountName, ...whom } = of;
    const letterOf = mails ? { accountName, seal, messagesMax } : undefined;
    const link = { accountId, ...whom, letterOf, purpose: 'invitation' } as const;
    const made = await createLink(links, baseUrl, link, actor);
    if (made === 'too-many') return made;
    if ('reason' in made) {
      this.#parts.onWithheld(accountId, made);
      return made.reason;
    }
    return { lifeMs: made.lifeMs, url: mails ? undefined : made.url };
  }

  async #use(
    token: string,
    purpose: LinkPurpose,
    hashes: Pick<LinkUse, 'passwordHash' | 'verifiedHash'>,
    by: Browser,
  ): Promise<AcceptOutcome> {
    const tokenHash = hashOfSecret(token);
    const { secret, session } = newSession(purpose === 'invitation' ? 'password' : 'link', by);
    const use = {
      tokenHash,
      purpose,
      newUserId: randomUUID(),
      ...hashes,
      session,
      endedIdHash: endedHashOf(by),
      entryId: randomUUID(),
    };
    const { links, browsers } = this.#parts;
    noteRequestSecret(tokenHash);
    const outcome = await links.use(use);
    if (outcome.kind !== 'signed-in') return outcome;
    const { passwordHash } = hashes;
    const { userId } = outcome;
    const known = passwordHash === null ? undefined : browsers.create({ userId, passwordHash });
    return { ...outcome, secret, known };
  }
}

/** The way to make one, for whoever may send mails. */
interface LetterOf {
  readonly accountName: string;
  /** @param id the mail's, which the text is bound to */
  readonly seal: (text: string, id: string) => string;
  /** As many mails as the account sends a day; absent: the operator sends it. */
  readonly messagesMax?: number;
}

function linkLetter(of: {
  /** The link's: the mail goes with it where that is withdrawn. */
  readonly id: string;
  readonly accountId: string;
  readonly purpose: LinkPurpose;
  readonly letterOf: LetterOf;
  readonly mail: string;
  readonly url: string;
  readonly lifeMs: number;
}): NewMail {
  const { id, accountId, purpose, letterOf, mail, url, lifeMs } = of;
  const { accountName: name, seal } = letterOf;
  const days = lifeMs / DAY_MS;
  const hours = lifeMs / HOUR_MS;
  const [subject, ...text] =
    purpose === 'invitation'
      ? [
          `Invitation to ${name} / 账户邀请`,
          `You are invited to the account ${name}. Use this link once, within ${days} days:`,
          `您受邀加入账户 ${name}。此链接仅能使用一次，${days} 天内有效：`,
          url,
          'If you did not expect this invitation, ignore this email.\n如果这不是您预期的邀请，请忽略此邮件。',
        ]
      : [
          `Sign in to ${name} / 登录链接`,
          `This link signs you in to the account ${name}. It works once, within ${hours} hours:`,
          `此链接可登录账户 ${name}，仅能使用一次，${hours} 小时内有效：`,
          url,
          'If you did not ask for this link, tell the operator of this service.\n如果您没有索取此链接，请告知服务运营者。',
        ];
  const body = seal(`${text.join('\n\n')}\n`, id);
  return { id, accountId, recipient: mail, subject, body };
}

interface LinkOptions {
  readonly role: Role;
}

interface OwnerOptions extends BootstrapOptions {
  readonly owner?: string;
}

export function addOwnerOption(program: Command, context: CliContext): void {
  commandOf(program, 'bootstrap')
    .option('--owner <mail>', 'owner of the account; prints a new sign-in link', parseMailArgument)
    .action((options: OwnerOptions) => bootstrapWithOwner(context, options));
}

export function addPeopleCommands(program: Command, context: CliContext): void {
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
