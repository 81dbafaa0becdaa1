/** Makes the use cases behind the account area. Opens nothing. */

import type { composePlayground } from './compose-playground.ts';
import type { SalesServices } from './compose-sales.ts';
import type { Config } from './config.ts';
import type { AccountAreaServices } from './http/account/account-app.ts';
import { OpenIdConnect } from './identity/openid-connect.ts';
import { Passwords } from './identity/passwords.ts';
import { type CallbackSecrets, mailBody } from './secrets/callback-secret.ts';
import { ManageAlerts } from './services/alerts/manage-alerts.ts';
import type { OnWithheld } from './services/alerts/withheld-messages.ts';
import { ManageKeys } from './services/keys/manage-keys.ts';
import { Links } from './services/people/links.ts';
import { Members } from './services/people/members.ts';
import { Profile } from './services/people/profile.ts';
import { ProviderSignIn } from './services/people/provider-sign-in.ts';
import { Sessions, SignIn } from './services/people/sign-in.ts';
import { KnownBrowsers, SignInThrottle } from './services/people/sign-in-throttle.ts';
import type { ReadUsage } from './services/usage/read-usage.ts';
import { Overview } from './services/usage/read-usage.ts';
import { CallbackAddressCheck } from './sources/callback-url.ts';
import type { OutgoingGuard } from './sources/guard/outgoing-guard.ts';
import type { Stores } from './store/stores.ts';

export interface AccountAreaParts {
  readonly config: Pick<
    Config,
    'accountArea' | 'accountMails' | 'allowHttpCallbacks' | 'baseUrl' | 'mail'
  >;
  readonly stores: Stores;
  readonly secretsKey: Buffer;
  readonly secrets: CallbackSecrets;
  readonly guard: OutgoingGuard;
  /** Called for each message that an account may not send any more today. */
  readonly onWithheld?: OnWithheld;
}

export function composeAccountArea(
  parts: AccountAreaParts,
  readUsage: ReadUsage,
  sales: Pick<SalesServices, 'orders' | 'ledgerHistory'>,
): Omit<AccountAreaServices, keyof ReturnType<typeof composePlayground>> {
  const { config, stores, secrets, secretsKey } = parts;
  const { people, sessions, links, audit } = stores;
  const browsers = new KnownBrowsers(secretsKey);
  const passwords = new Passwords();
  const throttle = new SignInThrottle(stores.signInThrottles, browsers);
  return {
    ...sales,
    sessions: new Sessions(sessions),
    manageKeys: new ManageKeys(stores.apiKeys),
    signIn: new SignIn({ people, sessions, passwords, throttle, browsers }),
    links: new Links({
      links,
      people,
      passwords,
      throttle,
      browsers,
      baseUrl: config.baseUrl,
      mails: config.mail !== undefined,
      sealMail: (text, id) => secrets.sealText(text, mailBody(id)),
      ...limitsOf(parts),
    }),
    profile: new Profile({ people, sessions, passwords, throttle, browsers }),
    members: new Members(people, audit),
    readUsage,
    overview: new Overview({ ledger: stores.ledger, jobs: stores.jobs, readUsage }),
    alerts: composeManageAlerts(parts),
    provider: composeProvider({ config, stores }, throttle),
  };
}

function composeManageAlerts(parts: AccountAreaParts): ManageAlerts {
  const { config, stores, secrets, guard } = parts;
  return new ManageAlerts({
    settings: stores.alertSettings,
    alerts: stores.alerts,
    secrets,
    addresses: new CallbackAddressCheck({ guard }),
    policy: config,
    mails: config.mail !== undefined,
    ...limitsOf(parts),
  });
}

function limitsOf({ config, onWithheld = () => undefined }: AccountAreaParts) {
  return { messagesMax: config.accountMails, onWithheld };
}

/** Undefined: people sign in by passwords alone. */
function composeProvider(
  { config, stores }: Pick<AccountAreaParts, 'config' | 'stores'>,
  throttle: SignInThrottle,
): ProviderSignIn | undefined {
  const oidc = config.accountArea?.oidc;
  if (oidc === undefined) return undefined;
  const redirectUrl = `${config.baseUrl}/account/sign-in/provider/back`;
  const provider = new OpenIdConnect({ ...oidc, redirectUrl });
  const { identities, accounts } = stores;
  const { grants, name } = oidc;
  return new ProviderSignIn({ provider, identities, accounts, throttle, grants, name });
}
