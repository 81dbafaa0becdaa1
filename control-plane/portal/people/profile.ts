/** The password that people change themselves. */
import { randomUUID } from 'node:crypto';
import type { ActingPerson } from '../../core/accounts/audit.ts';
import { type PasswordFault, type Passwords, passwordFaultOf } from '../sign-in/passwords.ts';
import type { KnownBrowsers, SignInThrottle } from '../sign-in/sign-in.ts';
import type { PeopleStore } from './people-store.ts';

/** The one who is signed in. */
export interface Self {
  readonly userId: string;
  readonly mail: string;
  readonly sessionId: string;
  readonly accountId: string;
  readonly actor: ActingPerson;
  /** They came by an operator's link: the password before is not asked for, once. */
  readonly cameByLink: boolean;
}

export type PasswordChange =
  /** @param known for the cookie of a known browser: the one before ended with the password */
  | { readonly kind: 'changed'; readonly known: string }
  /** The session ended meanwhile, or the password became another. */
  | { readonly kind: 'overtaken' }
  | { readonly kind: 'wrong' }
  | { readonly kind: 'bad-password'; readonly fault: PasswordFault }
  | { readonly kind: 'impossible' }
  | { readonly kind: 'throttled'; readonly waitMs: number };

export interface ProfileParts {
  readonly people: Pick<PeopleStore, 'find' | 'setPassword'>;
  readonly passwords: Pick<Passwords, 'hash' | 'verify'>;
  readonly throttle: SignInThrottle;
  readonly browsers: Pick<KnownBrowsers, 'create'>;
}

export class Profile {
  readonly #parts: ProfileParts;

  constructor(parts: ProfileParts) {
    this.#parts = parts;
  }

  /** False: they are known by an identity provider alone. */
  async mayHavePassword({ userId }: Pick<Self, 'userId'>): Promise<boolean> {
    return (await this.#parts.people.find(userId))?.hasMailKey ?? false;
  }

  /**
   * Ends every other session of the person.
   * @throws ContractError SERVICE_UNAVAILABLE
   */
  async changePassword(
    self: Self,
    given: { readonly current: string; readonly next: string },
  ): Promise<PasswordChange> {
    const { people, passwords, throttle, browsers } = this.#parts;
    const { userId, mail, sessionId, accountId, actor } = self;
    const person = await people.find(userId);
    if (person === undefined || !person.hasMailKey) return { kind: 'impossible' };
    const fault = await passwordFaultOf(given.next, mail);
    if (fault !== undefined) return { kind: 'bad-password', fault };
    // Who holds a stolen session guesses no faster than who signs in.
    const attempt = { by: 'session', sessionId, address: actor.address } as const;
    const waitMs = await throttle.take(attempt);
    if (waitMs > 0) return { kind: 'throttled', waitMs };
    const verifiedHash = self.cameByLink ? null : person.passwordHash;
    if (!self.cameByLink) {
      const matches = await passwords.verify(given.current, verifiedHash, actor.address, userId);
      if (!matches) return { kind: 'wrong' };
    }
    const passwordHash = await passwords.hash(given.next, actor.address, userId);
    const by = { actor, entryId: randomUUID() };
    const set = { userId, passwordHash, verifiedHash, sessionId, accountId };
    const outcome = await people.setPassword(set, by);
    if (outcome !== 'set') return { kind: outcome };
    await throttle.giveBack(attempt);
    return { kind: 'changed', known: browsers.create({ userId, passwordHash }) };
  }
}
