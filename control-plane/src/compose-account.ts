/** Makes the use cases behind the account area. Opens nothing. */
import type { SalesServices } from './compose-sales.ts';
import type { AccountAreaServices } from './http/account/account-app.ts';
import type { JobsRouteServices } from './http/account/routes/jobs-routes.ts';
import type { PlaygroundRouteServices } from './http/account/routes/playground-routes.ts';
import { Passwords } from './identity/passwords.ts';
import type { DatabaseTurns } from './services/database-turns.ts';
import { ManageKeys } from './services/keys/manage-keys.ts';
import { KnownBrowsers } from './services/people/known-browsers.ts';
import { Links } from './services/people/links.ts';
import { Members } from './services/people/members.ts';
import { Profile } from './services/people/profile.ts';
import { Sessions } from './services/people/sessions.ts';
import { SignIn } from './services/people/sign-in.ts';
import { SignInThrottle } from './services/people/sign-in-throttle.ts';
import type { Stores } from './store/stores.ts';

export interface AccountAreaParts {
  readonly config: { readonly baseUrl: string };
  readonly stores: Stores;
  readonly secretsKey: Buffer;
}

export function composeAccountArea(
  { config, stores, secretsKey }: AccountAreaParts,
  turns: DatabaseTurns,
  sales: Pick<SalesServices, 'orders' | 'ledgerHistory'>,
): Omit<AccountAreaServices, keyof (PlaygroundRouteServices & JobsRouteServices)> {
  const { people, sessions, links, audit } = stores;
  const browsers = new KnownBrowsers(secretsKey);
  const passwords = new Passwords();
  const throttle = new SignInThrottle(stores.signInThrottles, browsers, turns);
  return {
    ...sales,
    sessions: new Sessions(sessions, turns),
    manageKeys: new ManageKeys(stores.apiKeys, turns),
    signIn: new SignIn({ people, sessions, passwords, throttle, browsers, turns }),
    links: new Links({ links, passwords, browsers, turns, baseUrl: config.baseUrl }),
    profile: new Profile({ people, sessions, passwords, throttle, turns }),
    members: new Members(people, audit, turns),
  };
}
