/** Uses up invitations and sign-in links, which work once for whoever has them. */

import { randomUUID } from 'node:crypto';
import { noteRequestSecret } from '@matting/program/request-owner.ts';
import type {
  FoundLink,
  LinkPurpose,
  LinkStore,
  LinkUse,
  LinkUseOutcome,
} from '../people/link-store.ts';
import type { PeopleStore } from '../people/people-store.ts';
import { hashOfSecret } from '../session/secret.ts';
import { type Browser, endedHashOf, newSession } from '../session/session-store.ts';
import type { KnownBrowsers } from './known-browsers.ts';
import { type PasswordFault, type Passwords, passwordFaultOf } from './passwords.ts';
import type { Entered } from './sign-in.ts';
import type { SignInThrottle } from './sign-in-throttle.ts';

export type AcceptOutcome =
  | Entered
  | { readonly kind: 'bad-password'; readonly fault: PasswordFault }
  | { readonly kind: 'throttled'; readonly waitMs: number }
  | { readonly kind: 'another-person' }
  | Exclude<LinkUseOutcome, { readonly kind: 'signed-in' }>;

interface UseLinksParts {
  readonly links: LinkStore;
  readonly people: Pick<PeopleStore, 'findByMail'>;
  readonly passwords: Pick<Passwords, 'hash' | 'verify'>;
  readonly throttle: Pick<SignInThrottle, 'take' | 'giveBack' | 'knownId'>;
  readonly browsers: KnownBrowsers;
}

interface LinkUser extends Browser {
  readonly userId: string | undefined;
}

export class UseLinks {
  readonly #parts: UseLinksParts;

  constructor(parts: UseLinksParts) {
    this.#parts = parts;
  }

  find(token: string, purpose: LinkPurpose): Promise<FoundLink | undefined> {
    const hash = hashOfSecret(token);
    noteRequestSecret(hash);
    return this.#parts.links.find(hash, purpose);
  }

  /**
   * A person who has the invited mail gives their current password, a new person a new one. A
   * refusal does not reveal whether the person exists.
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
    // Somebody who proves a mail for the first time needs no current password. A signed-in person
    // needs it, since a typing error would set another password.
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
