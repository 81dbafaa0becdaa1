/**
 * The account area: pages for people, below /account of the public port, in a scope of their own.
 * Its routes know the session's cookie and no API key; those of the API know no cookie.
 */
import cookie from '@fastify/cookie';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AuthorityError } from '../../domain/account/authority.ts';
import type { ManageKeys } from '../../services/keys/manage-keys.ts';
import type { Sessions } from '../../services/people/sessions.ts';
import { registerAssets } from './page/assets.ts';
import { renderErrorPage } from './page/error-page.ts';
import { registerAuditRoutes } from './routes/audit-routes.ts';
import { type CreditRouteServices, registerCreditRoutes } from './routes/credit-routes.ts';
import { type JobsRouteServices, registerJobsRoutes } from './routes/jobs-routes.ts';
import { registerKeyRoutes } from './routes/key-routes.ts';
import { registerLinkRoutes } from './routes/link-routes.ts';
import { type OrderRouteServices, registerOrderRoutes } from './routes/order-routes.ts';
import { type PeopleRouteServices, registerPeopleRoutes } from './routes/people-routes.ts';
import {
  type PlaygroundRouteServices,
  registerPlaygroundRoutes,
} from './routes/playground-routes.ts';
import { registerProfileRoutes, registerSessionRoutes } from './routes/profile-routes.ts';
import { registerProviderRoutes } from './routes/provider-routes.ts';
import { registerSettingsRoutes, type SettingsRouteServices } from './routes/settings-routes.ts';
import { registerSignInRoutes, type SignInRouteServices } from './routes/sign-in-routes.ts';
import { registerUsageRoutes, type UsageRouteServices } from './routes/usage-routes.ts';
import { askToSignIn, guardRoutes } from './session/guard.ts';
import { PageError } from './session/page-error.ts';

export interface AccountAreaServices
  extends CreditRouteServices,
    OrderRouteServices,
    PeopleRouteServices,
    JobsRouteServices,
    PlaygroundRouteServices,
    SettingsRouteServices,
    SignInRouteServices,
    UsageRouteServices {
  readonly sessions: Sessions;
  readonly manageKeys: ManageKeys;
}

export interface AccountAreaOptions {
  readonly baseUrl: string;
  /** Whether people can sign in at the base URL: see isSignInUrl. */
  readonly canSignIn: boolean;
}

export function registerAccountArea(
  app: FastifyInstance,
  services: AccountAreaServices,
  options: AccountAreaOptions,
): void {
  app.register(
    async account => {
      await account.register(cookie);
      account.setErrorHandler(answerPageError);
      guardRoutes(account, services.sessions, options);
      registerSignInRoutes(account, services);
      if (services.provider !== undefined) registerProviderRoutes(account, services.provider);
      registerLinkRoutes(account, services.links);
      registerProfileRoutes(account, services.profile);
      registerSessionRoutes(account, services.profile);
      registerPeopleRoutes(account, services);
      registerAuditRoutes(account, services.members);
      registerCreditRoutes(account, services);
      registerOrderRoutes(account, services);
      registerJobsRoutes(account, services);
      registerPlaygroundRoutes(account, services, options);
      registerKeyRoutes(account, services.manageKeys, options.baseUrl);
      registerUsageRoutes(account, services, options);
      registerSettingsRoutes(account, services);
      registerAssets(account, { path: '/assets', config: { cookieless: true } });
    },
    { prefix: '/account' },
  );
}

/** The scope's own: what is no page's refusal is left to the public port's. */
function answerPageError(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  if (error instanceof AuthorityError) {
    if (error.loss === 'signed-out') return askToSignIn(request, reply);
    const kind = error.loss === 'forbidden' ? 'forbidden' : 'tooManyAttempts';
    return renderPageError(request, reply, new PageError(kind, error));
  }
  if (!(error instanceof PageError)) throw error;
  return renderPageError(request, reply, error);
}

function renderPageError(
  request: FastifyRequest,
  reply: FastifyReply,
  error: PageError,
): FastifyReply {
  if (error.retryAfterS !== undefined) reply.header('retry-after', String(error.retryAfterS));
  return renderErrorPage(request, reply, error);
}
