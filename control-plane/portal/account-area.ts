/**
 * The pages for people, under /account of the public port. These routes accept only the session's
 * cookie, and those of the API only keys.
 */
import cookie from '@fastify/cookie';
import type { HttpContext, HttpInterface } from '@matting/core/http/public-app.ts';
import type { Core, CoreStores } from '@matting/core/package.ts';
import { mailBody } from '@matting/core/secrets/secret-box.ts';
import { HEAVY } from '@matting/http/answer-shares.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ManageAlerts, registerSettingsRoutes } from './alerts/settings-pages.ts';
import { AccountJobs } from './jobs/account-jobs.ts';
import { registerJobsRoutes } from './jobs/job-pages.ts';
import { registerPluggedPages } from './jobs/pages-of-packages.ts';
import { registerWebhooksRoute } from './jobs/webhook-pages.ts';
import { registerKeyRoutes } from './keys/key-pages.ts';
import type { OnWithheld } from './mails/owners-mails.ts';
import { registerCreditRoutes } from './orders/credit-pages.ts';
import { LedgerHistory } from './orders/ledger-history.ts';
import { Orders, registerOrderRoutes } from './orders/order-pages.ts';
import { registerPackageRoutes } from './orders/package-pages.ts';
import { notePages, wantsPage, writeErrorPage } from './page/account-frame.ts';
import { registerAssets } from './page/assets.ts';
import { assetsOf, type Brand, noteBrand } from './page/brand.ts';
import { registerAuditRoute } from './people/audit-page.ts';
import { Invitations } from './people/invitations.ts';
import { registerPeopleRoutes } from './people/people-pages.ts';
import { registerPlaygroundRoutes } from './playground/playground-pages.ts';
import { UsePlayground } from './playground/use-playground.ts';
import type { PortalStores } from './portal-stores.ts';
import { guardAccountArea, redirectToSignIn } from './session/account-guard.ts';
import { AuthorityError } from './session/authority.ts';
import { sessionsIn } from './session/session-store.ts';
import { PageError } from './session/visit.ts';
import type { PortalSettings } from './settings.ts';
import { KnownBrowsers } from './sign-in/known-browsers.ts';
import { OpenIdConnect } from './sign-in/open-id-connect.ts';
import { type PasswordCosts, Passwords } from './sign-in/passwords.ts';
import { Profile, registerProfileRoutes } from './sign-in/profile-pages.ts';
import { ProviderSignIn } from './sign-in/provider-sign-in.ts';
import { SignIn } from './sign-in/sign-in.ts';
import { registerSignInRoutes } from './sign-in/sign-in-pages.ts';
import { SignInThrottle } from './sign-in/sign-in-throttle.ts';
import { UseLinks } from './sign-in/use-links.ts';
import { Overview, registerOverviewRoute } from './usage/overview-pages.ts';
import type { ReadUsage } from './usage/read-usage.ts';
import { registerUsageRoutes } from './usage/usage-pages.ts';

export interface AccountAreaParts {
  readonly core: Core;
  readonly settings: PortalSettings;
  readonly stores: CoreStores & PortalStores;
  readonly readUsage: ReadUsage;
  readonly onWithheld: OnWithheld;
  readonly brand: Brand;
  readonly passwordCosts: PasswordCosts | undefined;
}

type AreaSettings = NonNullable<PortalSettings['accountArea']>;

export interface AccountArea {
  readonly services: ReturnType<typeof accountAreaServices>;
  register(
    app: FastifyInstance,
    context: Pick<HttpContext, 'accountPages' | 'refuseUnknownPath'>,
  ): void;
  readonly errorWriterOf: NonNullable<HttpInterface['errorWriterOf']>;
}

export function openAccountArea(parts: AccountAreaParts, settings: AreaSettings): AccountArea {
  const services = accountAreaServices(parts, settings);
  const { baseUrl } = parts.core.config;
  const { brand } = parts;
  return {
    services,
    register(app, { accountPages: pages, refuseUnknownPath }) {
      app.register(
        async account => {
          await account.register(cookie);
          account.setErrorHandler(answerPageError);
          account.setNotFoundHandler(refuseUnknownPath);
          account.addHook('onRoute', route => {
            if (!['GET', 'HEAD'].includes(String(route.method)) || route.config?.cookieless) return;
            route.config = { weight: HEAVY, ...route.config };
          });
          account.addHook('onRequest', async request => noteBrand(request, brand));
          account.addHook('onRequest', async request => notePages(request, pages));
          guardAccountArea(account, services.sessions, { baseUrl, canSignIn: settings.canSignIn });
          registerSignInRoutes(account, services);
          registerProfileRoutes(account, services);
          registerPeopleRoutes(account, services);
          registerAuditRoute(account, services);
          registerCreditRoutes(account, services);
          registerPackageRoutes(account, services);
          registerOrderRoutes(account, services.orders);
          registerJobsRoutes(account, services, baseUrl);
          registerPluggedPages(account, pages, services);
          registerWebhooksRoute(account, services.accountJobs);
          registerPlaygroundRoutes(account, services, baseUrl);
          registerKeyRoutes(account, services, baseUrl);
          registerOverviewRoute(account, services, baseUrl);
          registerUsageRoutes(account, services);
          registerSettingsRoutes(account, services.alerts);
          registerAssets(account, '/assets', assetsOf(brand));
        },
        { prefix: '/account' },
      );
    },
    errorWriterOf(request, path) {
      if (!wantsPage(request, path)) return undefined;
      noteBrand(request, brand);
      return writeErrorPage;
    },
  };
}

function accountAreaServices(parts: AccountAreaParts, area: AreaSettings) {
  const { core, settings, stores, readUsage, onWithheld } = parts;
  const { priceList, paymentInstructions } = settings.sales;
  const { config, secrets } = core;
  const { resultDownload, resultReaders, uploads, submitMatting, models, rateLimits } =
    core.services;
  const browsers = new KnownBrowsers(core.secretsKey);
  const passwords = new Passwords(parts.passwordCosts);
  const throttle = new SignInThrottle(stores.signInThrottles, browsers);
  const signing = { ...stores, passwords, throttle, browsers };
  const messages = {
    mails: settings.mail !== undefined,
    messagesMax: settings.accountMails,
    onWithheld,
  };
  return {
    ...{ readUsage, resultDownload, resultReaders, models, fleet: core.fleet },
    orders: new Orders(stores.orders, priceList, paymentInstructions),
    /** Pages use these directly if no use case adds a rule. */
    stores,
    ledgerHistory: new LedgerHistory(stores),
    sessions: sessionsIn(stores.sessions),
    manageKeys: core.services.manageKeys,
    sendsMail: settings.mail !== undefined,
    signIn: new SignIn(signing),
    links: new UseLinks(signing),
    invitations: new Invitations({
      ...{ ...stores, ...messages },
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
      addresses: core.services.callbackAddresses,
      policy: config,
    }),
    provider: providerOf(parts, area, throttle),
    playground: new UsePlayground({
      ...{ ...stores, uploads, submitMatting, rateLimits },
      imagesMax: area.playgroundImages,
      // During an upgrade some nodes cannot keep the matte yet.
      isCorrectable: () =>
        core.config.corrections &&
        core.fleet.snapshots().every(({ capabilities }) => capabilities?.has('matte') === true),
    }),
    accountJobs: new AccountJobs({
      ...stores,
      operateWebhooks: core.operatorServices.operateWebhooks,
    }),
  };
}

function providerOf(
  { core, stores }: AccountAreaParts,
  { oidc }: AreaSettings,
  throttle: SignInThrottle,
): ProviderSignIn | undefined {
  if (oidc === undefined) return undefined;
  const redirectUrl = `${core.config.baseUrl}/account/sign-in/provider/back`;
  const provider = new OpenIdConnect({ ...oidc, redirectUrl });
  return new ProviderSignIn({ ...stores, provider, throttle, grants: oidc.grants });
}

/** Answers pages' refusals. Rethrows others, for the public port's handler. */
function answerPageError(error: unknown, request: FastifyRequest, reply: FastifyReply) {
  if (error instanceof PageError) return writeErrorPage(error, request, reply);
  if (!(error instanceof AuthorityError)) throw error;
  if (error.loss === 'signed-out') return redirectToSignIn(request, reply);
  const kind = error.loss === 'forbidden' ? 'forbidden' : 'tooManyAttempts';
  return writeErrorPage(new PageError(kind, error), request, reply);
}
