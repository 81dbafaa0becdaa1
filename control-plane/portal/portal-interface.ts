/** The portal, as the public port is given it: what programs ask of it, and its pages for people. */
import type { FastifyInstance } from 'fastify';
import { callerOf, type HeaderChecks } from '../core/http/header-checks.ts';
import type { HttpInterface } from '../core/http/public-app.ts';
import { registerAccountArea } from './account-app.ts';
import { documentPages } from './documents/document-pages.ts';
import { registerPaymentRoutes } from './orders/receive-payment.ts';
import { wantsPage, writeErrorPage } from './page/frame.ts';
import type { PortalServices } from './portal-services.ts';
import { readUsageQuery } from './usage/usage-pages.ts';

export interface PortalOptions {
  readonly baseUrl: string;
  /** The account area; undefined: there is none. */
  readonly accountArea: { readonly canSignIn: boolean } | undefined;
}

export function portalInterface(
  services: PortalServices,
  { baseUrl, accountArea }: PortalOptions,
): HttpInterface {
  return {
    register(app, { checks }) {
      registerAccountReads(app, services, checks);
      if (accountArea !== undefined) {
        registerAccountArea(app, services.accountArea, { baseUrl, ...accountArea });
      }
      if (services.receivePayment !== undefined) {
        registerPaymentRoutes(app, services.receivePayment);
      }
    },
    errorWriterOf: (request, path) =>
      accountArea !== undefined && wantsPage(request, path) ? writeErrorPage : undefined,
    documentPages,
  };
}

/** What programs read of an account, next to the core's own. */
function registerAccountReads(
  app: FastifyInstance,
  { readPackages, readUsage }: PortalServices,
  checks: HeaderChecks,
): void {
  const read = { onRequest: checks.account };
  app.get('/v1/account/packages', read, async () => readPackages.view());
  app.get('/v1/account/usage', read, request =>
    readUsage.view(callerOf(request).accountId, readUsageQuery(request.url)),
  );
}
