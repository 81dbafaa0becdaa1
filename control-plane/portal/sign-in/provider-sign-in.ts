/** Sign-in by an OpenID provider, whose groups give roles in accounts. */

import { randomUUID } from 'node:crypto';
import type { CoreStores } from '@matting/core/package.ts';
import { providerName } from '../mails/mail-address.ts';
import type { Role } from '../session/roles.ts';
import { type Browser, endedHashOf, newSession } from '../session/session-store.ts';
import type { IdentityOutcome, IdentityStore } from './identity-entry.ts';
import type { OpenIdConnect, OpenIdFlow } from './open-id-connect.ts';
import type { Entered } from './sign-in.ts';
import type { SignInThrottle } from './sign-in-throttle.ts';

export interface GroupGrant {
  readonly group: string;
  readonly account: string;
  readonly role: Role;
}

type ProviderOutcome =
  | Entered
  | Exclude<IdentityOutcome, { readonly kind: 'signed-in' }>
  | { readonly kind: 'throttled'; readonly waitMs: number };

interface ProviderSignInParts {
  readonly provider: OpenIdConnect;
  readonly identities: IdentityStore;
  readonly accounts: CoreStores['accounts'];
  readonly throttle: Pick<SignInThrottle, 'take' | 'giveBack'>;
  readonly grants: readonly GroupGrant[];
}

/** If several groups lead to an account, the highest role counts. */
const RANK: Readonly<Record<Role, number>> = { viewer: 0, member: 1, owner: 2 };

export class ProviderSignIn {
  readonly #parts: ProviderSignInParts;

  constructor(parts: ProviderSignInParts) {
    this.#parts = parts;
  }

  begin({ address }: Pick<Browser, 'address'>) {
    return this.#parts.provider.begin(address);
  }

  /** @param query of the redirect, with `?` @throws OpenIdError; SERVICE_UNAVAILABLE */
  async finish(query: string, flow: OpenIdFlow, browser: Browser): Promise<ProviderOutcome> {
    const { provider, identities, throttle } = this.#parts;
    const { address } = browser;
    // Nobody may make the service call the provider without a bound.
    const attempt = { by: 'provider', address } as const;
    const waitMs = await throttle.take(attempt);
    if (waitMs > 0) return { kind: 'throttled', waitMs };
    const { groups, ...person } = await provider.finish(address, query, flow);
    await throttle.giveBack(attempt);
    const grants = await this.#grantsOf(groups);
    const { secret, session } = newSession('oidc', browser);
    const entryIds = new Map(grants.map(({ accountId }) => [accountId, randomUUID()]));
    const entry = {
      ...person,
      mail: providerName(person),
      grants,
      newUserId: randomUUID(),
      session,
      endedIdHash: endedHashOf(browser),
      entryIdOf: (accountId: string) => {
        const id = entryIds.get(accountId) ?? randomUUID();
        entryIds.set(accountId, id as ReturnType<typeof randomUUID>);
        return id;
      },
    };
    const outcome = await identities.enter(entry);
    if (outcome.kind !== 'signed-in') return outcome;
    return { ...outcome, secret, known: undefined };
  }

  /** Skips listed accounts that do not exist yet. */
  async #grantsOf(groups: readonly string[]) {
    const { grants, accounts } = this.#parts;
    const theirs = grants.filter(({ group }) => groups.includes(group));
    const roles = new Map<string, Role>();
    for (const { account, role } of theirs) {
      const found = await accounts.findByNameOrId(account);
      if (found === undefined) continue;
      const before = roles.get(found.id);
      if (before === undefined || RANK[role] > RANK[before]) roles.set(found.id, role);
    }
    return [...roles].map(([accountId, role]) => ({ accountId, role }));
  }
}
