/**
 * The account area: pages for people, below /account of the public port, in a scope of their own.
 * Its routes know the session's cookie and no API key; those of the API know no cookie.
 */
import cookie from '@fastify/cookie';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Sessions } from '../../services/people/sessions.ts';
import { guardRoutes } from './session/guard.ts';
import { PageError } from './session/page-error.ts';

export interface AccountAreaServices {
  readonly sessions: Sessions;
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
    },
    { prefix: '/account' },
  );
}

function answerPageError(error: unknown, _request: FastifyRequest, reply: FastifyReply): void {
  // The public port's own answers to what is no page's refusal.
  if (!(error instanceof PageError)) throw error;
  if (error.retryAfterS !== undefined) reply.header('retry-after', String(error.retryAfterS));
  reply.code(error.status).type('text/plain; charset=utf-8').send(`${error.kind}\n`);
}
