import { callerOf, type HeaderChecks } from '@matting/core/http/header-checks.ts';
import type { HttpInterface } from '@matting/core/http/public-app.ts';
import type { Core, Loop, PackageParts } from '@matting/core/package.ts';
import type { Removal } from '@matting/core/retention/removal-steps.ts';
import { HEAVY, LIGHT } from '@matting/http/answer-shares.ts';
import { signingKeyOf } from '@matting/http/outgoing/webhook-signature.ts';
import type { FastifyInstance } from 'fastify';
import type { AccountArea, AccountAreaParts } from './account-area.ts';
import { BalanceWatch } from './alerts/balance-watch.ts';
import { KeyExpiryWatch } from './alerts/key-expiry-notices.ts';
import { errorsPage, registerDocuments } from './documents/document-routes.ts';
import { HTML_PAGE_HEADERS } from './documents/html-page.ts';
import { withheldReporter } from './mails/owners-mails.ts';
import { mailDelivery, SmtpSender } from './mails/send-mails.ts';
import { PACKAGES_VIEW } from './orders/order-rules.ts';
import { ReceivePayment, registerPaymentRoutes } from './orders/receive-payment.ts';
import { SignedNotifications } from './orders/signed-notifications.ts';
import { openBrand } from './page/brand.ts';
import { ACCOUNT_PATH, DOCS_PATH } from './page/html.ts';
import { type PortalMetrics, portalMetrics } from './portal-metrics.ts';
import { createPortalStores, type PortalStores } from './portal-stores.ts';
import type { PortalSettings } from './settings.ts';
import type { PasswordCosts } from './sign-in/passwords.ts';
import { ReadUsage, readUsageQuery } from './usage/read-usage.ts';

interface OpenedPortal extends PackageParts {
  readonly httpInterface: HttpInterface;
  readonly readUsage: ReadUsage;
  readonly readPackages: { view(): typeof PACKAGES_VIEW };
  readonly receivePayment: ReceivePayment | undefined;
  readonly accountArea: AccountArea | undefined;
}

export async function openPortal(
  core: Core,
  settings: PortalSettings,
  passwordCosts?: PasswordCosts,
): Promise<OpenedPortal> {
  const { log } = core;
  const stores = { ...core.stores, ...createPortalStores(core.database) };
  const metrics = portalMetrics(core.metrics, {
    mailsWaiting: () => stores.outbox.mailsWaiting(),
  });
  const parts = {
    core,
    settings,
    stores,
    passwordCosts,
    readUsage: new ReadUsage(stores),
    onWithheld: withheldReporter(metrics, log),
    brand: openBrand(settings.brand),
  };
  const receivePayment = paymentsOf(settings, stores, metrics);
  const accountArea = await openArea(parts);
  const { readUsage, brand } = parts;
  const hasAccountArea = accountArea !== undefined;
  const readPackages = { view: () => PACKAGES_VIEW };
  return {
    ...{ readUsage, readPackages },
    receivePayment,
    accountArea,
    httpInterface: {
      register(app, { checks, document, ...context }) {
        registerDocuments(app, document, { hasAccountArea, brand });
        registerAccountReads(app, { readUsage, readPackages }, checks);
        accountArea?.register(app, context);
        if (receivePayment !== undefined) registerPaymentRoutes(app, receivePayment);
      },
      errorWriterOf: accountArea?.errorWriterOf ?? (() => undefined),
      documentPages: {
        homePath: parts.settings.accountArea?.canSignIn ? ACCOUNT_PATH : DOCS_PATH,
        docsPath: DOCS_PATH,
        errors: document => errorsPage(document, { hasAccountArea, brand }),
        headers: HTML_PAGE_HEADERS,
      },
    },
    operatorPages: await openOperatorPages(parts),
    loops: loopsOf(parts, metrics),
    removals: removalsOf(stores),
  };
}

/** Imports the pages only if the account area is on. */
async function openArea(parts: AccountAreaParts): Promise<AccountArea | undefined> {
  const { accountArea } = parts.settings;
  if (accountArea === undefined) return undefined;
  const { openAccountArea } = await import('./account-area.ts');
  return openAccountArea(parts, accountArea);
}

/** Imports the pages only if a key opens them. */
async function openOperatorPages({
  core: { config, operatorServices },
  stores,
  brand,
}: AccountAreaParts): Promise<((app: FastifyInstance) => void) | undefined> {
  if (config.operatorKey === undefined) return undefined;
  const { operatorPages } = await import('./operator-pages/operator-pages.ts');
  const { operatorKey, baseUrl } = config;
  return operatorPages(operatorServices, stores, { operatorKey, baseUrl, brand });
}

function paymentsOf(
  { sales: { paymentSecret } }: PortalSettings,
  { orders }: PortalStores,
  metrics: PortalMetrics,
): ReceivePayment | undefined {
  if (paymentSecret === undefined) return undefined;
  return new ReceivePayment({
    provider: new SignedNotifications(signingKeyOf(paymentSecret)),
    orders,
    onNotification: outcome => metrics.paymentNotified(outcome),
  });
}

function registerAccountReads(
  app: FastifyInstance,
  { readUsage, readPackages }: Pick<OpenedPortal, 'readUsage' | 'readPackages'>,
  checks: HeaderChecks,
): void {
  const onRequest = checks.account;
  const packages = { onRequest, config: { weight: LIGHT } };
  app.get('/v1/account/packages', packages, async () => readPackages.view());
  const usage = { onRequest, config: { weight: HEAVY } };
  app.get('/v1/account/usage', usage, request =>
    readUsage.view(callerOf(request).accountId, readUsageQuery(request.url)),
  );
}

function loopsOf(
  { core, settings, stores, onWithheld }: AccountAreaParts,
  observer: PortalMetrics,
): Loop[] {
  const { secrets, log, replicaId: holder } = core;
  const { mail, accountMails: messagesMax } = settings;
  const watch = new BalanceWatch({
    alerts: stores.alerts,
    settings: stores.alertSettings,
    ...{ secrets, observer, log, messagesMax, onWithheld },
    mails: mail !== undefined,
    pageUrl: `${core.config.baseUrl}/account`,
  });
  // A replica that has a mail server sends the mails.
  if (mail === undefined) return [watch.loop];
  const sender = new SmtpSender({ ...mail, name: settings.brand.name });
  const { outbox } = stores;
  const expiry = new KeyExpiryWatch({
    ...stores,
    ...{ secrets, log, messagesMax, onWithheld },
    keysUrl: `${core.config.baseUrl}/account/keys`,
  });
  const delivery = mailDelivery({ sender, outbox, secrets, observer, log, holder });
  return [watch.loop, expiry.loop, delivery];
}

function removalsOf(stores: PortalStores): Removal[] {
  const { alerts, endedOperatorSessions, expiryNotices, people, usage } = stores;
  return [
    { name: 'old usage', remove: size => usage.removeOld(size) },
    { name: 'old counts of messages', remove: size => alerts.removeOldCounts(size) },
    { name: 'old key expiry notices', remove: size => expiryNotices.removeOld(size) },
    { name: 'ended sessions', remove: size => people.removeEndedSessions(size) },
    { name: 'ended operator sessions', remove: size => endedOperatorSessions.removeOld(size) },
    { name: 'old links', remove: size => people.removeOldLinks(size) },
    { name: 'old failures of sign-in', remove: size => people.removeOldThrottles(size) },
  ];
}
