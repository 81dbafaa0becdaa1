/**
 * The account area: pages for people, below /account of the public port, in a scope of their own.
 * Its routes know the session's cookie and no API key; those of the API know no cookie.
 */
import cookie from '@fastify/cookie';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AuthorityError } from '../../domain/account/authority.ts';
import type { AccountJobs } from '../../services/account-jobs/account-jobs.ts';
import type { ManageAlerts } from '../../services/alerts/manage-alerts.ts';
import type { ManageKeys } from '../../services/keys/manage-keys.ts';
import type { Links } from '../../services/people/links.ts';
import type { Profile } from '../../services/people/profile.ts';
import type { ProviderSignIn } from '../../services/people/provider-sign-in.ts';
import type { Sessions, SignIn } from '../../services/people/sign-in.ts';
import type { UsePlayground } from '../../services/playground/use-playground.ts';
import type { LedgerHistory } from '../../services/sales/ledger-history.ts';
import type { Orders } from '../../services/sales/orders.ts';
import type { Overview, ReadUsage } from '../../services/usage/read-usage.ts';
import type { Stores } from '../../store/stores.ts';
import { registerCreditRoutes } from './credits.ts';
import { type ResultServices, registerJobsRoutes } from './jobs.ts';
import { registerKeyRoutes } from './keys.ts';
import { registerOrderRoutes } from './orders.ts';
import { registerAssets } from './page/assets.ts';
import { writeErrorPage } from './page/render-page.ts';
import { registerPeopleRoutes } from './people.ts';
import { registerPlaygroundRoutes } from './playground.ts';
import { registerProfileRoutes } from './profile.ts';
import { askToSignIn, guardAccountArea } from './session/account-door.ts';
import { PageError } from './session/page-error.ts';
import { registerSettingsRoutes } from './settings.ts';
import { registerSignInRoutes } from './sign-in.ts';
import { registerUsageRoutes } from './usage.ts';

export interface AccountAreaServices extends ResultServices {
  readonly accountJobs: AccountJobs;
  readonly alerts: ManageAlerts;
  readonly ledgerHistory: LedgerHistory;
  readonly links: Links;
  readonly manageKeys: ManageKeys;
  readonly orders: Orders;
  readonly overview: Overview;
  readonly playground: UsePlayground;
  readonly profile: Profile;
  /** Undefined: people sign in by passwords alone. */
  readonly provider: ProviderSignIn | undefined;
  readonly readUsage: ReadUsage;
  readonly sessions: Sessions;
  readonly signIn: SignIn;
  /** What people read and change without a rule besides the store's own. */
  readonly stores: Pick<Stores, 'audit' | 'links' | 'people' | 'sessions'>;
}

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
      registerJobsRoutes(account, services.accountJobs, services);
      registerPlaygroundRoutes(account, services.playground, services, baseUrl);
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
