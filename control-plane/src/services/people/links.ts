/** Invitations and sign-in links: who has the link can use it, once. */
import { randomBytes, randomUUID } from 'node:crypto';
import type { Actor } from '../../domain/account/actor.ts';
import type { Role } from '../../domain/account/roles.ts';
import { type PasswordFault, passwordFaultOf } from '../../identity/password-rule.ts';
import type { Passwords } from '../../identity/passwords.ts';
import type { LinkPurpose } from '../../store/database/schema-people.ts';
import type {
  FoundLink,
  LinkStore,
  LinkUseOutcome,
  OpenInvitation,
} from '../../store/people/link-store.ts';
import type { DatabaseTurns } from '../database-turns.ts';
import { invitationLetter } from './invitation-letter.ts';
import type { KnownBrowsers } from './known-browsers.ts';
import { hashOfSecret } from './sessions.ts';
import { type Browser, type Entered, endedHashOf, newSession } from './sign-in.ts';

export type { FoundLink, OpenInvitation };

const DAY_MS = 86_400_000;
/** Long enough for somebody who is away for a few days. */
export const INVITATION_MS = 7 * DAY_MS;
/** Printed in a terminal, and used from it. */
export const SIGN_IN_LINK_MS = 12 * 3_600_000;

const TOKEN_BYTES = 32;

export interface MadeLink {
  readonly url: string;
  readonly lifeMs: number;
}

/**
 * Makes a link; its token is in the URL this once and nowhere else. The account must exist.
 * @param mail of parseMail
 * @returns undefined: the account has as many open invitations as it may
 */
export async function createLink(
  links: Pick<LinkStore, 'create'>,
  baseUrl: string,
  of: {
    readonly accountId: string;
    readonly mail: string;
    readonly role: Role;
    readonly purpose: LinkPurpose;
    /** Named in the mail that brings an invitation; absent: no mail is sent. */
    readonly letterOf?: string | undefined;
  },
  actor: Actor,
): Promise<MadeLink | undefined> {
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  const isInvitation = of.purpose === 'invitation';
  const lifeMs = isInvitation ? INVITATION_MS : SIGN_IN_LINK_MS;
  const tokenHash = hashOfSecret(token);
  const { letterOf: accountName, ...named } = of;
  const url = `${baseUrl}/account/${isInvitation ? 'invitations' : 'links'}/${token}`;
  const letter =
    accountName === undefined
      ? undefined
      : invitationLetter({ ...of, accountName, url, days: lifeMs / DAY_MS });
  const link = { id: randomUUID(), tokenHash, lifeMs, entryId: randomUUID(), letter, ...named };
  return (await links.create(link, actor)) === 'too-many' ? undefined : { url, lifeMs };
}

export type AcceptOutcome =
  | Entered
  | { readonly kind: 'bad-password'; readonly fault: PasswordFault }
  | Exclude<LinkUseOutcome, { readonly kind: 'signed-in' }>;

export interface LinksParts {
  readonly links: LinkStore;
  readonly passwords: Pick<Passwords, 'hash'>;
  readonly browsers: KnownBrowsers;
  readonly turns: Pick<DatabaseTurns, 'ofStranger' | 'ofAccount'>;
  readonly baseUrl: string;
  /** Whether invitations go by mail too. */
  readonly mails: boolean;
}

/** Who uses a link: a browser, with whom it is signed in. */
export interface LinkUser extends Browser {
  readonly userId: string | undefined;
}

export class Links {
  readonly #parts: LinksParts;

  constructor(parts: LinksParts) {
    this.#parts = parts;
  }

  /** Undefined: none that can be used (any more). */
  find(token: string, purpose: LinkPurpose): Promise<FoundLink | undefined> {
    const hash = hashOfSecret(token);
    return this.#parts.turns.ofStranger(hash, () => this.#parts.links.find(hash, purpose));
  }

  /**
   * The person sets their password, or is one already and signed in.
   * @throws ContractError SERVICE_UNAVAILABLE
   */
  async acceptInvitation(token: string, password: string, by: LinkUser): Promise<AcceptOutcome> {
    const link = await this.find(token, 'invitation');
    if (link === undefined) return { kind: 'unknown' };
    if (by.userId !== undefined) return this.#use(token, 'invitation', link, null, by);
    if (link.personExists) return { kind: 'person-exists' };
    const fault = await passwordFaultOf(password, link.mail);
    if (fault !== undefined) return { kind: 'bad-password', fault };
    const hash = await this.#parts.passwords.hash(password, by.address);
    return this.#use(token, 'invitation', link, hash, by);
  }

  async signIn(token: string, by: Browser): Promise<AcceptOutcome> {
    const link = await this.find(token, 'sign-in');
    if (link === undefined) return { kind: 'unknown' };
    return this.#use(token, 'sign-in', link, null, { ...by, userId: undefined });
  }

  listInvitations(accountId: string): Promise<OpenInvitation[]> {
    const { turns, links } = this.#parts;
    return turns.ofAccount(accountId, () => links.listInvitations(accountId));
  }

  /** Undefined: the account has as many open ones as it may. @param mail of parseMail */
  invite(
    accountId: string,
    of: { readonly mail: string; readonly role: Role; readonly accountName: string },
    actor: Actor,
  ): Promise<MadeLink | undefined> {
    const { turns, links, baseUrl, mails } = this.#parts;
    const { accountName, ...whom } = of;
    const letterOf = mails ? accountName : undefined;
    const link = { accountId, ...whom, letterOf, purpose: 'invitation' } as const;
    return turns.ofAccount(accountId, () => createLink(links, baseUrl, link, actor));
  }

  /** By the operator, for somebody of the account or whoever first comes with that mail. */
  async createSignInLink(
    accountId: string,
    of: { readonly mail: string; readonly role: Role },
  ): Promise<MadeLink> {
    const { links, baseUrl } = this.#parts;
    const link = { accountId, ...of, purpose: 'sign-in' } as const;
    const made = await createLink(links, baseUrl, link, { kind: 'operator' });
    if (made === undefined) throw new Error('sign-in links have no bound');
    return made;
  }

  /** False: the account has no such invitation (any more). */
  withdraw(accountId: string, id: string, actor: Actor): Promise<boolean> {
    const { turns, links } = this.#parts;
    const by = { actor, entryId: randomUUID() };
    return turns.ofAccount(accountId, () => links.withdraw(accountId, id, by));
  }

  async #use(
    token: string,
    purpose: LinkPurpose,
    link: FoundLink,
    passwordHash: string | null,
    by: LinkUser,
  ): Promise<AcceptOutcome> {
    const tokenHash = hashOfSecret(token);
    const { secret, session } = newSession(purpose === 'invitation' ? 'password' : 'link', by);
    const use = {
      tokenHash,
      purpose,
      userId: by.userId ?? null,
      newUserId: randomUUID(),
      passwordHash,
      session,
      endedIdHash: endedHashOf(by),
      entryId: randomUUID(),
    };
    const { turns, links, browsers } = this.#parts;
    const outcome = await turns.ofStranger(tokenHash, () => links.use(use));
    if (outcome.kind !== 'signed-in') return outcome;
    return { ...outcome, secret, known: browsers.create(link.mail) };
  }
}
