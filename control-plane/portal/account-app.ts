/**
 * The account area: pages for people, below /account of the public port, in a scope of their own.
 * Its routes know the session's cookie and no API key; those of the API know no cookie.
 */
import cookie from '@fastify/cookie';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ManageKeys } from '../core/keys/manage-keys.ts';
import { type ManageAlerts, registerSettingsRoutes } from './alerts/settings-pages.ts';
import { registerJobsRoutes } from './jobs/job-pages.ts';
import { registerKeyRoutes } from './keys/key-pages.ts';
import { type LedgerHistory, registerCreditRoutes } from './orders/credit-pages.ts';
import { type Orders, registerOrderRoutes } from './orders/order-pages.ts';
import { registerAssets, writeErrorPage } from './page/frame.ts';
import { registerPeopleRoutes } from './people/people-pages.ts';
import { registerProfileRoutes } from './people/profile-pages.ts';
import { registerPlaygroundRoutes } from './playground/playground-pages.ts';
import { askToSignIn, guardAccountArea } from './session/guard.ts';
import { PageError } from './session/visit.ts';
import { AuthorityError, type Sessions } from './sign-in/session-store.ts';
import { registerSignInRoutes } from './sign-in/sign-in-pages.ts';
import { registerUsageRoutes } from './usage/usage-pages.ts';

/** The use cases and stores behind the pages. */
export type AccountAreaServices = Parameters<typeof registerSignInRoutes>[1] &
  Parameters<typeof registerProfileRoutes>[1] &
  Parameters<typeof registerPeopleRoutes>[1] &
  Parameters<typeof registerJobsRoutes>[1] &
  Parameters<typeof registerPlaygroundRoutes>[1] &
  Parameters<typeof registerUsageRoutes>[1] & {
    readonly alerts: ManageAlerts;
    readonly ledgerHistory: LedgerHistory;
    readonly manageKeys: ManageKeys;
    readonly orders: Orders;
    readonly sessions: Sessions;
  };

/** @param options.canSignIn whether people can sign in at the base URL: see isSignInUrl */
export function registerAccountArea(
  app: FastifyInstance,
  services: AccountAreaServices,
  options: { readonly baseUrl: string; readonly canSignIn: boolean },
): void {
  const { baseUrl } = options;
  app.register(
    async account => {
      await account.register(cookie);
      account.setErrorHandler(answerPageError);
      guardAccountArea(account, services.sessions, options);
      registerSignInRoutes(account, services);
      registerProfileRoutes(account, services);
      registerPeopleRoutes(account, services);
      registerCreditRoutes(account, services.ledgerHistory);
      registerOrderRoutes(account, services.orders);
      registerJobsRoutes(account, services);
      registerPlaygroundRoutes(account, services, baseUrl);
      registerKeyRoutes(account, services.manageKeys, baseUrl);
      registerUsageRoutes(account, services, baseUrl);
      registerSettingsRoutes(account, services.alerts);
      registerAssets(account, '/assets');
    },
    { prefix: '/account' },
  );
}

/** The scope's own: what is no page's refusal is left to the public port's. */
function answerPageError(error: unknown, request: FastifyRequest, reply: FastifyReply) {
  if (error instanceof PageError) return writeErrorPage(error, request, reply);
  if (!(error instanceof AuthorityError)) throw error;
  if (error.loss === 'signed-out') return askToSignIn(request, reply);
  const kind = error.loss === 'forbidden' ? 'forbidden' : 'tooManyAttempts';
  return writeErrorPage(new PageError(kind, error), request, reply);
}
