/** Makes the use cases of the portal, on the core's. */
import type { Logger } from 'pino';
import { CallbackAddressCheck } from '../core/fetching/guarded-post.ts';
import type { OutgoingGuard } from '../core/fetching/outgoing-guard.ts';
import type { CallbackPolicy } from '../core/fetching/outgoing-url.ts';
import type { AppServices } from '../core/http/app-services.ts';
import { ManageKeys } from '../core/keys/manage-keys.ts';
import { type CallbackSecrets, mailBody, signingKeyOf } from '../core/secrets/secret-box.ts';
import type { Stores } from '../core/stores.ts';
import { OperateWebhooks } from '../core/webhooks/operate-webhooks.ts';
import type { AccountAreaServices } from './account-app.ts';
import { withheldTeller } from './alerts/balance-watch.ts';
import { ManageAlerts } from './alerts/settings-pages.ts';
import { AccountJobs } from './jobs/job-pages.ts';
import { LedgerHistory } from './orders/credit-pages.ts';
import { Orders } from './orders/order-pages.ts';
import { type ListOnSale, PACKAGES_VIEW } from './orders/order-rules.ts';
import { ReceivePayment, SignedNotifications, type ToldOutcome } from './orders/receive-payment.ts';
import { Links } from './people/links.ts';
import { Profile } from './people/profile-pages.ts';
import { UsePlayground } from './playground/use-playground.ts';
import type { PortalStores } from './portal-stores.ts';
import { type PasswordCosts, Passwords } from './sign-in/passwords.ts';
import {
  OpenIdConnect,
  type OpenIdConnectOptions,
  ProviderSignIn,
  type ProviderSignInParts,
} from './sign-in/provider-sign-in.ts';
import { sessionsIn } from './sign-in/session-store.ts';
import { KnownBrowsers, SignIn, SignInThrottle } from './sign-in/sign-in.ts';
import { Overview, ReadUsage } from './usage/usage-pages.ts';

export interface PortalSettings extends CallbackPolicy {
  readonly baseUrl: string;
  /** Undefined: there are no pages for people. */
  readonly accountArea: AccountAreaSettings | undefined;
  /** Undefined: no mail is sent. */
  readonly mail: unknown;
  /** Messages of an account a day. */
  readonly accountMails: number;
  readonly sales: {
    readonly priceList: ListOnSale;
    readonly paymentInstructions: string | undefined;
    /** Undefined: nobody tells of payments. */
    readonly paymentSecret: string | undefined;
  };
}

interface AccountAreaSettings {
  readonly canSignIn: boolean;
  readonly playgroundImages: number;
  readonly oidc:
    | (Omit<OpenIdConnectOptions, 'redirectUrl'> & Pick<ProviderSignInParts, 'grants' | 'name'>)
    | undefined;
}

export interface PortalParts {
  readonly config: PortalSettings;
  readonly stores: Stores & PortalStores;
  readonly secrets: CallbackSecrets;
  readonly secretsKey: Buffer;
  readonly guard: OutgoingGuard;
  readonly observer: Parameters<typeof withheldTeller>[0] & {
    paymentTold(outcome: ToldOutcome): void;
  };
  readonly log: Pick<Logger, 'warn'>;
  /** The service's own where absent; tests take cheaper ones. */
  readonly passwordCosts?: PasswordCosts | undefined;
}

export type PortalServices = ReturnType<typeof portalServices>;

export function portalServices(parts: PortalParts, core: AppServices) {
  const { config, stores, observer } = parts;
  const { priceList, paymentInstructions, paymentSecret } = config.sales;
  const readUsage = new ReadUsage(stores);
  const orders = new Orders(stores.orders, priceList, paymentInstructions);
  return {
    readUsage,
    readPackages: { view: () => PACKAGES_VIEW },
    /** Undefined: nobody tells of payments. */
    receivePayment:
      paymentSecret === undefined
        ? undefined
        : new ReceivePayment({
            provider: new SignedNotifications(signingKeyOf(paymentSecret)),
            orders: stores.orders,
            onTold: outcome => observer.paymentTold(outcome),
          }),
    accountArea: accountAreaServices(parts, { ...core, readUsage, orders }),
  };
}

interface SharedServices extends AppServices {
  readonly readUsage: ReadUsage;
  readonly orders: Orders;
}

function accountAreaServices(
  { config, stores, secrets, guard, ...parts }: PortalParts,
  { readUsage, orders, resultDownload, resultReaders, uploads, submitMatting }: SharedServices,
): AccountAreaServices {
  const browsers = new KnownBrowsers(parts.secretsKey);
  const passwords = new Passwords(parts.passwordCosts);
  const throttle = new SignInThrottle(stores.signInThrottles, browsers);
  const signing = { ...stores, passwords, throttle, browsers };
  const messages = {
    mails: config.mail !== undefined,
    messagesMax: config.accountMails,
    onWithheld: withheldTeller(parts.observer, parts.log),
  };
  return {
    ...{ readUsage, orders, resultDownload, resultReaders, stores },
    ledgerHistory: new LedgerHistory(stores.ledger),
    sessions: sessionsIn(stores.sessions),
    manageKeys: new ManageKeys(stores.apiKeys),
    signIn: new SignIn(signing),
    links: new Links({
      ...{ ...signing, ...messages },
      baseUrl: config.baseUrl,
      sealMail: (text, id) => secrets.sealText(text, mailBody(id)),
    }),
    profile: new Profile(signing),
    overview: new Overview({ ...stores, readUsage }),
    alerts: new ManageAlerts({
      ...messages,
      settings: stores.alertSettings,
      alerts: stores.alerts,
      secrets,
      addresses: new CallbackAddressCheck(guard),
      policy: config,
    }),
    provider: providerOf(config, stores, throttle),
    playground: new UsePlayground({
      ...{ ...stores, uploads, submitMatting },
      imagesMax: config.accountArea?.playgroundImages ?? 0,
    }),
    accountJobs: new AccountJobs({ ...stores, operateWebhooks: new OperateWebhooks(stores) }),
  };
}

/** Undefined: people sign in by passwords alone. */
function providerOf(
  config: PortalSettings,
  stores: Stores & PortalStores,
  throttle: SignInThrottle,
) {
  const oidc = config.accountArea?.oidc;
  if (oidc === undefined) return undefined;
  const redirectUrl = `${config.baseUrl}/account/sign-in/provider/back`;
  const { grants, name } = oidc;
  const provider = new OpenIdConnect({ ...oidc, redirectUrl });
  return new ProviderSignIn({ ...stores, provider, throttle, grants, name });
}
