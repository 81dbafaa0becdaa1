import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { ActingPerson, ServiceActor } from '@matting/accounts/audit-log.ts';
import { HOUR_MS, sha256 } from '@matting/core/test/fixtures.ts';
import type { LinkUse, NewLink } from '../people/link-store.ts';
import { actingPerson } from '../session/authority.ts';
import type { Permission, Role } from '../session/roles.ts';
import type { NewSession } from '../session/session-store.ts';
import type { Stores } from './fixtures.ts';

export const OPERATOR: ServiceActor = { kind: 'operator' };

export function newLink(accountId: string, overrides: Partial<NewLink> = {}): NewLink {
  const id = randomUUID();
  return {
    id,
    tokenHash: sha256(id),
    purpose: 'invitation',
    accountId,
    mail: `guest-${id.slice(0, 8)}@example.org`,
    role: 'member',
    lifeMs: HOUR_MS,
    provesMail: true,
    entryId: randomUUID(),
    ...overrides,
  };
}

export function newSession(overrides: Partial<NewSession> = {}): NewSession {
  const id = randomUUID();
  return {
    id,
    idHash: sha256(id),
    method: 'password',
    address: '192.0.2.7',
    agent: 'a browser',
    ...overrides,
  };
}

export function linkUse(
  { tokenHash, purpose }: Pick<NewLink, 'tokenHash' | 'purpose'>,
  overrides: Partial<LinkUse> = {},
): LinkUse {
  return {
    tokenHash,
    purpose,
    newUserId: randomUUID(),
    passwordHash: 'a hash',
    verifiedHash: null,
    session: newSession(),
    endedIdHash: null,
    entryId: randomUUID(),
    ...overrides,
  };
}

export interface Person {
  readonly userId: string;
  readonly mail: string;
  readonly session: NewSession;
}

export async function personOfAccount(
  { links }: Pick<Stores, 'links'>,
  accountId: string,
  role: Role = 'owner',
): Promise<Person> {
  const link = newLink(accountId, { role });
  assert.equal(await links.create(link, OPERATOR), 'created');
  const use = linkUse(link);
  assert.equal((await links.use(use)).kind, 'signed-in');
  return { userId: use.newUserId, mail: link.mail, session: use.session };
}

export function actorOf({ userId, mail, session }: Person, permission: Permission): ActingPerson {
  const { id: sessionId, address } = session;
  return actingPerson({ kind: 'person', userId, mail, address, sessionId, permission });
}

export function identityEntry(grants: Parameters<Stores['identities']['enter']>[0]['grants']) {
  const ids = new Map(grants.map(({ accountId }) => [accountId, randomUUID()]));
  return {
    issuer: 'https://id.example',
    subject: randomUUID(),
    mail: 'somebody@example.org',
    grants,
    newUserId: randomUUID(),
    session: newSession({ method: 'oidc' }),
    endedIdHash: null,
    entryIdOf: (accountId: string) => {
      const id = ids.get(accountId) ?? randomUUID();
      ids.set(accountId, id);
      return id;
    },
  };
}
