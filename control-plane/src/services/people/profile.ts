/** What people change about themselves: password, language, sessions, the account they act for. */
import { randomUUID } from 'node:crypto';
import type { Actor } from '../../domain/account/actor.ts';
import { type PasswordFault, passwordFaultOf } from '../../identity/password-rule.ts';
import type { Passwords } from '../../identity/passwords.ts';
import type { PeopleStore, Person } from '../../store/people/people-store.ts';
import type { ListedSession, SessionStore } from '../../store/people/session-store.ts';
import type { DatabaseTurns } from '../database-turns.ts';
import { hashOfSecret } from './sessions.ts';
import type { SignInThrottle } from './sign-in-throttle.ts';

export type { ListedSession };

/** The one who is signed in. */
export interface Self {
  readonly userId: string;
  readonly mail: string;
  readonly sessionId: string;
  readonly accountId: string;
  readonly actor: Actor & { readonly kind: 'person' };
  /** They came by an operator's link: the password before is not asked for. */
  readonly cameByLink: boolean;
  /** The cookie of a known browser. */
  readonly browser: string | undefined;
}

export interface ProfileView {
  readonly hasPassword: boolean;
  /** False: they are known by an identity provider alone. */
  readonly mayHavePassword: boolean;
}

export type PasswordChange =
  | { readonly kind: 'changed' }
  | { readonly kind: 'wrong' }
  | { readonly kind: 'bad-password'; readonly fault: PasswordFault }
  | { readonly kind: 'impossible' }
  | { readonly kind: 'throttled'; readonly waitMs: number };

export interface ProfileParts {
  readonly people: Pick<PeopleStore, 'find' | 'setPassword' | 'setLanguage'>;
  readonly sessions: Pick<SessionStore, 'list' | 'end' | 'endOthers' | 'switchAccount'>;
  readonly passwords: Pick<Passwords, 'hash' | 'verify'>;
  readonly throttle: SignInThrottle;
  readonly turns: Pick<DatabaseTurns, 'ofAccount' | 'ofStranger'>;
}

export class Profile {
  readonly #parts: ProfileParts;

  constructor(parts: ProfileParts) {
    this.#parts = parts;
  }

  async view(self: Self): Promise<ProfileView> {
    const person = await this.#find(self);
    return {
      hasPassword: person?.passwordHash !== null && person !== undefined,
      mayHavePassword: person?.hasMailKey ?? false,
    };
  }

  /**
   * Ends every other session of the person.
   * @throws ContractError SERVICE_UNAVAILABLE
   */
  async changePassword(
    self: Self,
    given: { readonly current: string; readonly next: string },
  ): Promise<PasswordChange> {
    const { people, passwords, throttle, turns } = this.#parts;
    const { userId, mail, sessionId, accountId, actor } = self;
    const person = await this.#find(self);
    if (person === undefined || !person.hasMailKey) return { kind: 'impossible' };
    // Who holds a stolen session guesses no faster than who signs in.
    if (person.passwordHash !== null && !self.cameByLink) {
      const attempt = { mail, address: actor.address, browser: self.browser };
      const waitMs = await throttle.take(attempt);
      if (waitMs > 0) return { kind: 'throttled', waitMs };
      const matches = await passwords.verify(given.current, person.passwordHash, actor.address);
      if (!matches) return { kind: 'wrong' };
      await throttle.giveBack(attempt);
    }
    const fault = await passwordFaultOf(given.next, mail);
    if (fault !== undefined) return { kind: 'bad-password', fault };
    const passwordHash = await passwords.hash(given.next, actor.address);
    const by = { actor, entryId: randomUUID() };
    const set = { userId, passwordHash, sessionId, accountId };
    const isSet = await turns.ofAccount(accountId, () => people.setPassword(set, by));
    return { kind: isSet ? 'changed' : 'impossible' };
  }

  setLanguage(self: Pick<Self, 'userId' | 'accountId'>, language: string): Promise<void> {
    const { turns, people } = this.#parts;
    return turns.ofAccount(self.accountId, () => people.setLanguage(self.userId, language));
  }

  sessions({ userId, accountId }: Pick<Self, 'userId' | 'accountId'>): Promise<ListedSession[]> {
    return this.#parts.turns.ofAccount(accountId, () => this.#parts.sessions.list(userId));
  }

  /** False: they have no such session (any more). */
  endSession(self: Pick<Self, 'userId' | 'accountId'>, sessionId: string): Promise<boolean> {
    const { turns, sessions } = this.#parts;
    return turns.ofAccount(self.accountId, () => sessions.end(self.userId, sessionId));
  }

  endOtherSessions(self: Pick<Self, 'userId' | 'accountId' | 'sessionId'>): Promise<void> {
    const { turns, sessions } = this.#parts;
    const { userId, sessionId } = self;
    return turns.ofAccount(self.accountId, () => sessions.endOthers(userId, sessionId));
  }

  /** False: they are no member of it. @param secret what the session's cookie holds */
  switchAccount(secret: string, accountId: string): Promise<boolean> {
    const hash = hashOfSecret(secret);
    const { turns, sessions } = this.#parts;
    return turns.ofStranger(hash, () => sessions.switchAccount(hash, accountId));
  }

  #find({ userId, accountId }: Self): Promise<Person | undefined> {
    return this.#parts.turns.ofAccount(accountId, () => this.#parts.people.find(userId));
  }
}
