import { randomUUID } from 'node:crypto';
import { fundedAccount } from '@matting/core/test/fixtures.ts';
import { BASE_URL } from '@matting/core/test/support/test-app.ts';
import { csrfTokenOf } from '../session/form-token.ts';
import type { Role } from '../session/roles.ts';
import { Person } from './area/person.ts';
import { type Member, signedIn } from './area/world.ts';
import type { Stores } from './fixtures.ts';
import { newLink } from './people.ts';
import type { PortalApp } from './portal-app.ts';

/** Each has an address of its own. */
export class Browser extends Person {
  constructor({ app }: Pick<PortalApp, 'app'>, address = '192.0.2.1') {
    super(app, BASE_URL, { address, headers: { accept: 'text/html' } });
  }
}

/** Has the token, so that a test need not read a page for it. */
export type SignedInBrowser = Member & { readonly csrf: string };

/** A new person. @param options.accountId absent: the test application's */
export async function signIn(
  test: Pick<PortalApp, 'app' | 'accountId'> & { readonly stores: Pick<Stores, 'links'> },
  options: { readonly role?: Role; readonly accountId?: string; readonly mail?: string } = {},
): Promise<SignedInBrowser> {
  const { role = 'owner', accountId = test.accountId } = options;
  const { mail = `${role}-${randomUUID().slice(0, 8)}@example.org` } = options;
  const link = newLink(accountId, { purpose: 'sign-in', role, mail, provesMail: true });
  const member = await signedIn(test, new Browser(test, '127.0.0.1'), link);
  const csrf = csrfTokenOf(member.secret, accountId);
  return Object.assign(member, { csrf, token: async () => csrf });
}

export async function signInElsewhere(test: PortalApp): Promise<SignedInBrowser> {
  return signIn(test, { accountId: await fundedAccount(test.stores, 0) });
}
